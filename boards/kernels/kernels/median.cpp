#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
#pragma omp parallel for
    for (long y = 0; y < n; y++)
        for (long x = 0; x < n; x++) {
            float window[9];
            for (long i = 0; i < 9; i++) {
                long fx = std::min(std::max(x + i % 3 - 1, 0l), n - 1), fy = std::min(std::max(y + i / 3 - 1, 0l), n - 1);
                window[i] = input[fy * n + fx];
            }
            for (int i = 0; i < 5; i++)
                for (int j = i + 1; j < 9; j++)
                    if (window[j] < window[i]) std::swap(window[i], window[j]);
            output[y * n + x] = window[4];
        }
}
