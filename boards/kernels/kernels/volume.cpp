extern "C" void run(void** b, long n) {
    const float *before = (const float*)b[0], *weights = (const float*)b[1];
    float* __restrict__ after = (float*)b[2];
#pragma omp parallel for collapse(2)
    for (long z = 1; z < n - 1; z++)
        for (long y = 1; y < n - 1; y++)
            for (long x = 1; x < n - 1; x++) {
                float sum = 0;
                for (int k = 0; k < 3; k++)
                    for (int j = 0; j < 3; j++)
                        for (int i = 0; i < 3; i++) sum += weights[(k * 3 + j) * 3 + i] * before[((z + k - 1) * n + y + j - 1) * n + x + i - 1];
                after[(z * n + y) * n + x] = sum;
            }
}
