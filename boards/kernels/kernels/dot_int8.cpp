#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const int8_t *rows = (const int8_t*)b[0], *vector = (const int8_t*)b[1];
    int32_t* sums = (int32_t*)b[2];
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        int32_t sum = 0;
        for (long k = 0; k < 64; k++)
            for (int e = 0; e < 4; e++) sum += (int32_t)rows[(k * n + i) * 4 + e] * (int32_t)vector[k * 4 + e];
        sums[i] = sum;
    }
}
