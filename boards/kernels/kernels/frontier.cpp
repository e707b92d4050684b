#include <cstdint>

extern "C" void run(void** b, long n) {
    const uint32_t *starts = (const uint32_t*)b[0], *edges = (const uint32_t*)b[1], *level = (const uint32_t*)b[2];
    uint32_t *seen = (uint32_t*)b[3], *queue = (uint32_t*)b[4];
#pragma omp parallel for
    for (long g = 0; g < n; g += 128) {
        uint32_t items[2048], count = 0;
        for (long node = g; node < g + 128; node++)
            if (level[node] == 0)
                for (uint32_t e = starts[node]; e < starts[node + 1]; e++) {
                    uint32_t other = edges[e], bit = 1u << (other & 31);
                    if ((__atomic_fetch_or(&seen[other >> 5], bit, __ATOMIC_RELAXED) & bit) == 0) items[count++] = other;
                }
        uint32_t base = __atomic_fetch_add(&queue[0], count, __ATOMIC_RELAXED);
        for (uint32_t i = 0; i < count; i++) queue[1 + base + i] = items[i];
    }
}
