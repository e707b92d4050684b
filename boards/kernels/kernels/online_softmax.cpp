#include <algorithm>
#include <cmath>

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
#pragma omp parallel for
    for (long row = 0; row < n; row++) {
        const float* x = input + row * 1024;
        float m[128], s[128];
        for (int t = 0; t < 128; t++) m[t] = -1e30f, s[t] = 0;
        for (int i = 0; i < 1024; i += 128)
            for (int t = 0; t < 128; t++) {
                float most = std::max(m[t], x[i + t]);
                s[t] = s[t] * expf(m[t] - most) + expf(x[i + t] - most);
                m[t] = most;
            }
        for (int step = 64; step > 0; step >>= 1)
            for (int t = 0; t < step; t++) {
                float most = std::max(m[t], m[t + step]);
                s[t] = s[t] * expf(m[t] - most) + s[t + step] * expf(m[t + step] - most);
                m[t] = most;
            }
        for (int i = 0; i < 1024; i++) output[row * 1024 + i] = expf(x[i] - m[0]) / s[0];
    }
}
