#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const uint32_t* input = (const uint32_t*)b[0];
    uint32_t* __restrict__ output = (uint32_t*)b[1];
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        uint32_t x = input[i];
        for (int round = 0; round < 64; round++) {
            x = (x ^ 61) ^ (x >> 16);
            x = x + (x << 3);
            x = x ^ (x >> 4);
            x = x * 0x27d4eb2d;
            x = x ^ (x >> 15);
        }
        output[i] = x;
    }
}
