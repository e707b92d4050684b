extern "C" void run(void** b, long n) {
    const float *a = (const float*)b[0], *x = (const float*)b[1];
    float* y = (float*)b[2];
#pragma omp parallel for
    for (long r = 0; r < n; r++) {
        float sum = 0;
        for (long i = 0; i < 4096; i++) sum += a[r * 4096 + i] * x[i];
        y[r] = sum;
    }
}
