#include <cstdint>

extern "C" void run(void** b, long n) {
    uint32_t shift = *(const uint32_t*)b[0];
    const uint32_t* in = (const uint32_t*)b[1];
    uint32_t *out = (uint32_t*)b[2], *digit_counts = (uint32_t*)b[3];
#pragma omp parallel for
    for (long g = 0; g < n / 1024; g++) {
        uint32_t counts[16] = {}, place[16];
        const uint32_t* keys = in + g * 1024;
        for (int i = 0; i < 1024; i++) counts[keys[i] >> shift & 15]++;
        uint32_t sum = 0;
        for (int d = 0; d < 16; d++) {
            place[d] = sum;
            sum += counts[d];
            digit_counts[g * 16 + d] = counts[d];
        }
        for (int i = 0; i < 1024; i++) out[g * 1024 + place[keys[i] >> shift & 15]++] = keys[i];
    }
}
