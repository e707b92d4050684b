#include <cstdint>

extern "C" void run(void** b, long n) {
    const uint32_t *starts = (const uint32_t*)b[0], *neighbours = (const uint32_t*)b[1], *before = (const uint32_t*)b[2];
    uint32_t* after = (uint32_t*)b[3];
#pragma omp parallel for
    for (long node = 0; node < n; node++) {
        if (before[node] != 1) continue;
        for (uint32_t i = starts[node]; i < starts[node + 1]; i++)
            if (before[neighbours[i]] == 0) __atomic_store_n(&after[neighbours[i]], 2u, __ATOMIC_RELAXED);
    }
}
