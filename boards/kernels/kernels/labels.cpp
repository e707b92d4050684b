#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const uint32_t *kind = (const uint32_t*)b[0], *before = (const uint32_t*)b[1];
    uint32_t* after = (uint32_t*)b[2];
#pragma omp parallel for
    for (long y = 0; y < n; y++)
        for (long x = 0; x < n; x++) {
            uint32_t mine = kind[y * n + x], label = before[y * n + x];
            for (long dy = -1; dy <= 1; dy++)
                for (long dx = -1; dx <= 1; dx++) {
                    long qx = x + dx, qy = y + dy;
                    if (qx < 0 || qy < 0 || qx >= n || qy >= n) continue;
                    if (kind[qy * n + qx] == mine) label = std::min(label, before[qy * n + qx]);
                }
            after[y * n + x] = label;
        }
}
