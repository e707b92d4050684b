#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const uint32_t* cells = (const uint32_t*)b[0];
    uint32_t* __restrict__ next = (uint32_t*)b[1];
#pragma omp parallel for
    for (long py = 0; py < n; py++)
        for (long px = 0; px < n; px++) {
            uint32_t count = 0;
            for (int dy = 0; dy < 3; dy++)
                for (int dx = 0; dx < 3; dx++) count += cells[(py + dy + n - 1) % n * n + (px + dx + n - 1) % n];
            uint32_t alive = cells[py * n + px];
            count -= alive;
            next[py * n + px] = count == 3 || (count == 2 && alive == 1);
        }
}
