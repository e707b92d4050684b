#include <cstdint>

extern "C" void run(void** b, long n) {
    const uint32_t* input = (const uint32_t*)b[0];
    uint32_t* lengths = (uint32_t*)b[1];
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        if (i > 0 && input[i - 1] == input[i]) {
            lengths[i] = 0;
            continue;
        }
        long end = i + 1;
        while (end < n && input[end] == input[i]) end++;
        lengths[i] = (uint32_t)(end - i);
    }
}
