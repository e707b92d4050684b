#include <cstdint>

extern "C" void run(void** b, long n) {
    const uint32_t *row_ptr = (const uint32_t*)b[0], *col_idx = (const uint32_t*)b[1];
    const float *vals = (const float*)b[2], *x = (const float*)b[3];
    float* y = (float*)b[4];
#pragma omp parallel for
    for (long row = 0; row < n; row++) {
        float sum = 0;
        for (uint32_t j = row_ptr[row]; j < row_ptr[row + 1]; j++) sum += vals[j] * x[col_idx[j]];
        y[row] = sum;
    }
}
