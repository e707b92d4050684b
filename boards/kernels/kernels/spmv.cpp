#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const uint32_t *starts = (const uint32_t*)b[0], *columns = (const uint32_t*)b[1];
    const float *values = (const float*)b[2], *x = (const float*)b[3];
    float* y = (float*)b[4];
#pragma omp parallel for
    for (long row = 0; row < n; row++) {
        float sum = 0;
        for (uint32_t k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k]];
        y[row] = sum;
    }
}
