#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const uint32_t *letters = (const uint32_t*)b[0], *pattern = (const uint32_t*)b[1];
    uint32_t* __restrict__ found = (uint32_t*)b[2];
#pragma omp parallel for
    for (long i = 0; i <= n - 8; i++) {
        uint32_t matched = 1;
        for (int k = 0; k < 8; k++)
            if (letters[i + k] != pattern[k]) {
                matched = 0;
                break;
            }
        found[i] = matched;
    }
}
