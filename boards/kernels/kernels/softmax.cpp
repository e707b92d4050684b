#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
    const long width = 4096;
#pragma omp parallel for
    for (long r = 0; r < n / width; r++) {
        const float* row = input + r * width;
        float* out = output + r * width;
        float most = -3.4e38f;
        for (long i = 0; i < width; i++) most = std::max(most, row[i]);
        float sum = 0;
        for (long i = 0; i < width; i++) sum += expf(row[i] - most);
        for (long i = 0; i < width; i++) out[i] = expf(row[i] - most) / sum;
    }
}
