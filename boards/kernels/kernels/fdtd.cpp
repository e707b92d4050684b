extern "C" void run(void** b, long n) {
    const float *input = (const float*)b[0], *weights = (const float*)b[1];
    float* __restrict__ output = (float*)b[2];
    long plane = n * n;
#pragma omp parallel for collapse(2)
    for (long z = 4; z < n - 4; z++)
        for (long y = 4; y < n - 4; y++)
            for (long x = 4; x < n - 4; x++) {
                const float* at = input + z * plane + y * n + x;
                float value = weights[0] * *at;
                for (long i = 1; i <= 4; i++)
                    value += weights[i] * (at[-i * plane] + at[i * plane] + at[-i * n] + at[i * n] + at[-i] + at[i]);
                output[z * plane + y * n + x] = value;
            }
}
