extern "C" void run(void** b, long n) {
    const _Float16 *matrix = (const _Float16*)b[0], *vector = (const _Float16*)b[1];
    float* products = (float*)b[2];
#pragma omp parallel for
    for (long row = 0; row < n; row++) {
        float sum = 0;
        for (long i = 0; i < 1024; i++) sum += (float)matrix[row * 1024 + i] * (float)vector[i];
        products[row] = sum;
    }
}
