static const int SIZE = 13;
static const unsigned MASK = (1u << 13) - 1;

static unsigned count_from(unsigned index) {
    unsigned columns = 0, left = 0, right = 0;
    for (int row = 0; row < 4; row++) {
        unsigned bit = 1u << (index >> (4 * row) & 15);
        if (bit > MASK || ((columns | left | right) & bit)) return 0;
        columns |= bit;
        left = (left | bit) << 1;
        right = (right | bit) >> 1;
    }
    unsigned open_at[16], column_at[16], left_at[16], right_at[16], count = 0;
    int depth = 4;
    column_at[4] = columns, left_at[4] = left, right_at[4] = right;
    open_at[4] = MASK & ~(columns | left | right);
    while (depth >= 4) {
        unsigned open = open_at[depth];
        if (open == 0) {
            depth--;
            continue;
        }
        unsigned bit = open & -open;
        open_at[depth] = open ^ bit;
        if (depth == SIZE - 1) {
            count++;
            continue;
        }
        unsigned c = column_at[depth] | bit, l = (left_at[depth] | bit) << 1, r = (right_at[depth] | bit) >> 1;
        depth++;
        column_at[depth] = c, left_at[depth] = l, right_at[depth] = r;
        open_at[depth] = MASK & ~(c | l | r);
    }
    return count;
}

extern "C" void run(void** b, long n) {
    unsigned* solutions = (unsigned*)b[0];
#pragma omp parallel for schedule(dynamic, 64)
    for (long index = 0; index < n; index++) solutions[index] = count_from(index);
}
