extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
#pragma omp parallel for
    for (long y = 1; y < n - 1; y++)
        for (long x = 1; x < n - 1; x++) {
            long i = y * n + x;
            output[i] = 0.2f * (input[i] + input[i - 1] + input[i + 1] + input[i - n] + input[i + n]);
        }
}
