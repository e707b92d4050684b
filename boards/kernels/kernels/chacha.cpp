
static inline unsigned rotated(unsigned x, int by) { return x << by | x >> (32 - by); }
static inline void quarter(unsigned* s, int a, int b, int c, int d) {
    s[a] += s[b];
    s[d] = rotated(s[d] ^ s[a], 16);
    s[c] += s[d];
    s[b] = rotated(s[b] ^ s[c], 12);
    s[a] += s[b];
    s[d] = rotated(s[d] ^ s[a], 8);
    s[c] += s[d];
    s[b] = rotated(s[b] ^ s[c], 7);
}

extern "C" void run(void** b, long n) {
    const unsigned *key = (const unsigned*)b[0], *message = (const unsigned*)b[1];
    unsigned* secret = (unsigned*)b[2];
#pragma omp parallel for
    for (long id = 0; id < n; id++) {
    unsigned start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    for (int i = 0; i < 8; i++) start[4 + i] = key[i];
    start[12] = (unsigned)id;
    start[13] = 7;
    start[14] = 11;
    start[15] = 13;
    unsigned state[16];
    for (int i = 0; i < 16; i++) state[i] = start[i];
    for (int round = 0; round < 10; round++) {
        quarter(state, 0, 4, 8, 12);
        quarter(state, 1, 5, 9, 13);
        quarter(state, 2, 6, 10, 14);
        quarter(state, 3, 7, 11, 15);
        quarter(state, 0, 5, 10, 15);
        quarter(state, 1, 6, 11, 12);
        quarter(state, 2, 7, 8, 13);
        quarter(state, 3, 4, 9, 14);
    }
    for (int i = 0; i < 16; i++) secret[id * 16 + i] = message[id * 16 + i] ^ (state[i] + start[i]);
    }
}
