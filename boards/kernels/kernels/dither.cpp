#include <cstdint>
#include <cmath>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* image = (const float*)b[0];
    uint32_t* output = (uint32_t*)b[1];
    static const uint32_t bayer[16] = {0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5};
#pragma omp parallel for
    for (long y = 0; y < n; y++)
        for (long x = 0; x < n; x++) {
            float threshold = ((float)bayer[(y % 4) * 4 + x % 4] + 0.5f) / 16.0f - 0.5f;
            float level = floorf(image[y * n + x] * 3.0f + threshold + 0.5f);
            output[y * n + x] = (uint32_t)std::min(std::max(level, 0.0f), 3.0f);
        }
}
