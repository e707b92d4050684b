extern "C" void run(void** b, long n) {
    const float *input = (const float*)b[0], *taps = (const float*)b[1];
    float* __restrict__ output = (float*)b[2];
#pragma omp parallel for simd
    for (long i = 0; i <= n - 31; i++) {
        float sum = 0;
        for (int k = 0; k < 31; k++) sum += taps[k] * input[i + k];
        output[i] = sum;
    }
}
