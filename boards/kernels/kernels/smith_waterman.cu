extern "C" __global__ void kernel(const unsigned* __restrict__ queries, const unsigned* __restrict__ targets,
                                  int* __restrict__ scores, int n) {
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= n) return;
    int row[33] = {};
    unsigned query[32];
    for (int i = 0; i < 32; i++) query[i] = (queries[id * 2 + i / 16] >> (2 * (i % 16))) & 3;
    int best = 0;
    for (int t = 0; t < 64; t++) {
        unsigned letter = (targets[id * 4 + t / 16] >> (2 * (t % 16))) & 3;
        int diagonal = 0;
        for (int i = 0; i < 32; i++) {
            int above = row[i + 1];
            int matched = diagonal + (query[i] == letter ? 5 : -3);
            int score = max(max(matched, 0), max(above, row[i]) - 4);
            diagonal = above;
            row[i + 1] = score;
            best = max(best, score);
        }
    }
    scores[id] = best;
}
