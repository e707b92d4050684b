#include <cstdint>

extern "C" void run(void** b, long n) {
    const uint32_t *table = (const uint32_t*)b[0], *queries = (const uint32_t*)b[1];
    uint32_t* places = (uint32_t*)b[2];
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        uint32_t wanted = queries[i], low = 0, high = 1 << 16;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (table[middle] < wanted) low = middle + 1;
            else high = middle;
        }
        places[i] = low;
    }
}
