extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
#pragma omp parallel for collapse(2)
    for (long z = 0; z < n; z++)
        for (long y = 0; y < n; y++)
            for (long x = 0; x < n; x++) {
                long at = (z * n + y) * n + x;
                float now = input[at];
                if (x == 0 || y == 0 || z == 0 || x == n - 1 || y == n - 1 || z == n - 1) {
                    output[at] = now;
                    continue;
                }
                float around = input[at - 1] + input[at + 1] + input[at - n] + input[at + n] + input[at - n * n] + input[at + n * n];
                output[at] = now + 0.1f * (around - 6.0f * now);
            }
}
