#include <cstring>

struct Sizes {
    unsigned m, n, k, unused;
};

extern "C" void run(void** buffers, long) {
    const Sizes sizes = *(const Sizes*)buffers[0];
    const float *a = (const float*)buffers[1], *b = (const float*)buffers[2];
    float* c = (float*)buffers[3];
    long m = sizes.m, n = sizes.n, k = sizes.k;
#pragma omp parallel for
    for (long row = 0; row < m; row++) {
        float* to = c + row * n;
        std::memset(to, 0, n * sizeof(float));
        for (long i = 0; i < k; i++) {
            float by = a[row * k + i];
            for (long column = 0; column < n; column++) to[column] += by * b[i * n + column];
        }
    }
}
