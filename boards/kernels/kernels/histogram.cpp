#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const uint32_t* input = (const uint32_t*)b[0];
    uint32_t* bins = (uint32_t*)b[1];
#pragma omp parallel
    {
        uint32_t local[256] = {};
#pragma omp for nowait
        for (long i = 0; i < n; i++) local[input[i] & 255]++;
#pragma omp critical
        for (int i = 0; i < 256; i++) bins[i] += local[i];
    }
}
