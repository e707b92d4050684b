extern "C" void run(void** b, long n) {
    const float *input = (const float*)b[0], *weights = (const float*)b[1];
    float* __restrict__ output = (float*)b[2];
#pragma omp parallel for
    for (long y = 2; y < n - 2; y++)
        for (long x = 2; x < n - 2; x++) {
            float sum = 0;
            for (int dy = 0; dy < 5; dy++)
                for (int dx = 0; dx < 5; dx++) sum += weights[dy * 5 + dx] * input[(y + dy - 2) * n + x + dx - 2];
            output[y * n + x] = sum;
        }
}
