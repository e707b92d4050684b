extern "C" void run(void** b, long n) {
    const unsigned* input = (const unsigned*)b[0];
    unsigned* output = (unsigned*)b[1];
#pragma omp parallel for
    for (long start = 0; start < n; start += 1024) {
        unsigned sum = 0;
        for (long i = start; i < start + 1024; i++) {
            output[i] = sum;
            sum += input[i];
        }
    }
}
