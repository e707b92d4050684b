extern "C" void run(void** b, long n) {
    const float* rows = (const float*)b[0];
    float* sums = (float*)b[1];
#pragma omp parallel for
    for (long row = 0; row < n; row++) {
        float sum = 0;
        for (long i = row * 64; i < row * 64 + 64; i++) sums[i] = sum += rows[i];
    }
}
