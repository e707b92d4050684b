#include <cstring>

extern "C" void run(void** b, long n) {
    const float *left = (const float*)b[0], *right = (const float*)b[1];
    float* c = (float*)b[2];
#pragma omp parallel for collapse(2)
    for (long y = 0; y < n; y += 64)
        for (long x = 0; x < n; x += 64) {
            float sums[64][64];
            memset(sums, 0, sizeof sums);
            for (long k = 0; k < n; k += 16)
                for (long i = 0; i < 64; i++)
                    for (long j = k; j < k + 16; j++)
                        for (long m = 0; m < 64; m++) sums[i][m] += left[(y + i) * n + j] * right[j * n + x + m];
            for (long i = 0; i < 64; i++) memcpy(c + (y + i) * n + x, sums[i], sizeof sums[i]);
        }
}
