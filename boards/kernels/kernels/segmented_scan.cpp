extern "C" void run(void** b, long n) {
    const float* values = (const float*)b[0];
    const unsigned* flags = (const unsigned*)b[1];
    float* sums = (float*)b[2];
#pragma omp parallel for
    for (long g = 0; g < n; g += 256) {
        float sum = 0;
        for (long i = g; i < g + 256; i++) {
            sum = flags[i] == 0 ? values[i] : sum + values[i];
            sums[i] = sum;
        }
    }
}
