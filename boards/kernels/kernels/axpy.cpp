extern "C" void run(void** b, long n) {
    const float *x = (const float*)b[0], *y = (const float*)b[1];
    float* __restrict__ z = (float*)b[2];
#pragma omp parallel for simd
    for (long i = 0; i < n; i++) z[i] = 2.5f * x[i] + y[i];
}
