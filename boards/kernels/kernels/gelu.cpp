#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* x = (const float*)b[0];
    float* __restrict__ y = (float*)b[1];
#pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        float v = 6.0f * x[i] - 3.0f;
        y[i] = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    }
}
