#include <algorithm>
#define FN static inline
#define MIN std::min
#define MAX std::max
FN float median(const float* __restrict__ src, int x, int y, int n) {
    float window[25];
    int count = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) {
            int sy = MIN(MAX(y + dy, 0), n - 1), sx = MIN(MAX(x + dx, 0), n - 1);
            float value = src[sy * n + sx];
            int k = count;
            while (k > 0 && window[k - 1] > value) {
                window[k] = window[k - 1];
                k--;
            }
            window[k] = value;
            count++;
        }
    return window[12];
}

extern "C" void run(void** b, long n) {
    const float* src = (const float*)b[0];
    float* dst = (float*)b[1];
#pragma omp parallel for
    for (int y = 0; y < n; y++)
        for (int x = 0; x < n; x++) dst[y * n + x] = median(src, x, y, n);
}
