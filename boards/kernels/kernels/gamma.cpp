#include <cmath>

static float encode(float x) { return x <= 0.0031308f ? 12.92f * x : 1.055f * std::pow(x, 0.41666667f) - 0.055f; }

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* __restrict__ output = (float*)b[1];
#pragma omp parallel for
    for (long i = 0; i < 4 * n; i++) output[i] = i % 4 == 3 ? input[i] : encode(input[i]);
}
