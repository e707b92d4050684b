#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
    const long width = 1024;
#pragma omp parallel for
    for (long r = 0; r < n / width; r++) {
        const float* row = input + r * width;
        float* __restrict__ out = output + r * width;
        float sum = 0;
        for (long i = 0; i < width; i++) sum += row[i] * row[i];
        float scale = 1.0f / sqrtf(sum / width + 1e-5f);
        for (long i = 0; i < width; i++) out[i] = row[i] * scale;
    }
}
