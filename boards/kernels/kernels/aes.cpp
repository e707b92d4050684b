static inline unsigned turned(unsigned x, int bits) { return (x << bits) | (x >> (32 - bits)); }

static inline unsigned column(const unsigned* table, unsigned a, unsigned b, unsigned c, unsigned d, unsigned key) {
    return table[a & 255] ^ turned(table[b >> 8 & 255], 8) ^ turned(table[c >> 16 & 255], 16) ^ turned(table[d >> 24], 24) ^ key;
}

extern "C" void run(void** b, long n) {
    const unsigned *blocks = (const unsigned*)b[0], *table = (const unsigned*)b[1], *keys = (const unsigned*)b[2];
    unsigned* encrypted = (unsigned*)b[3];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        unsigned s[4];
        for (int i = 0; i < 4; i++) s[i] = blocks[4 * at + i] ^ keys[i];
        for (int round = 1; round <= 10; round++) {
            const unsigned* k = keys + 4 * round;
            unsigned x = column(table, s[0], s[1], s[2], s[3], k[0]), y = column(table, s[1], s[2], s[3], s[0], k[1]);
            unsigned z = column(table, s[2], s[3], s[0], s[1], k[2]), w = column(table, s[3], s[0], s[1], s[2], k[3]);
            s[0] = x; s[1] = y; s[2] = z; s[3] = w;
        }
        for (int i = 0; i < 4; i++) encrypted[4 * at + i] = s[i];
    }
}
