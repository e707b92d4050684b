#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* __restrict__ output = (float*)b[1];
#pragma omp parallel for
    for (long y = 2; y < n - 2; y++)
        for (long x = 2; x < n - 2; x++) {
            float centre = input[y * n + x], sum = 0, weight = 0;
            for (int dy = -2; dy <= 2; dy++)
                for (int dx = -2; dx <= 2; dx++) {
                    float value = input[(y + dy) * n + x + dx], d = value - centre;
                    float w = expf(-(float)(dx * dx + dy * dy) * 0.2f - d * d * 8.0f);
                    sum += w * value;
                    weight += w;
                }
            output[y * n + x] = sum / weight;
        }
}
