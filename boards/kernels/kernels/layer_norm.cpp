#include <cmath>

extern "C" void run(void** b, long n) {
    const float *input = (const float*)b[0], *weight = (const float*)b[1], *bias = (const float*)b[2];
    float* output = (float*)b[3];
#pragma omp parallel for
    for (long row = 0; row < n; row++) {
        const float* x = input + row * 1024;
        float sum = 0, squares = 0;
        for (int i = 0; i < 1024; i++) sum += x[i];
        float mean = sum / 1024.0f;
        for (int i = 0; i < 1024; i++) squares += (x[i] - mean) * (x[i] - mean);
        float scale = 1.0f / sqrtf(squares / 1024.0f + 1e-5f);
        for (int i = 0; i < 1024; i++) output[row * 1024 + i] = (x[i] - mean) * scale * weight[i] + bias[i];
    }
}
