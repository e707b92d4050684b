#include <cstdint>

extern "C" void run(void** b, long n) {
    const int8_t *a = (const int8_t*)b[0], *bt = (const int8_t*)b[1];
    const float* scales = (const float*)b[2];
    float* c = (float*)b[3];
#pragma omp parallel for
    for (long row = 0; row < n; row++)
        for (long column = 0; column < n; column++) {
            int sum = 0;
            for (long k = 0; k < n; k++) sum += (int)a[row * n + k] * (int)bt[column * n + k];
            c[row * n + column] = (float)sum * scales[row] * scales[column];
        }
}
