#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    uint32_t* image = (uint32_t*)b[0];
#pragma omp parallel for schedule(dynamic)
    for (long py = 0; py < n; py++)
        for (long px = 0; px < n; px++) {
            float cx = px * (3.0f / n) - 2.2f, cy = py * (3.0f / n) - 1.5f, x = 0, y = 0;
            uint32_t i = 0;
            while (i < 256 && x * x + y * y < 4.0f) {
                float next = x * x - y * y + cx;
                y = 2.0f * x * y + cy;
                x = next;
                i++;
            }
            image[py * n + px] = i;
        }
}
