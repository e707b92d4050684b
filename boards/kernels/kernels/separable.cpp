extern "C" void run(void** b, long n) {
    const float *input = (const float*)b[0], *weights = (const float*)b[1];
    float* __restrict__ output = (float*)b[2];
#pragma omp parallel for
    for (long y = 0; y < n; y++)
        for (long x = 0; x < n; x++) {
            float sum = 0;
            for (long j = 0; j < 17; j++) {
                long at = x + j - 8;
                sum += weights[j] * (at >= 0 && at < n ? input[y * n + at] : 0);
            }
            output[y * n + x] = sum;
        }
}
