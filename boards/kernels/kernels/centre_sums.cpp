extern "C" void run(void** b, long n) {
    const float* points = (const float*)b[0];
    const unsigned* cluster = (const unsigned*)b[1];
    int* sums = (int*)b[2];
    int total[48] = {};
#pragma omp parallel for reduction(+ : total)
    for (long i = 0; i < n; i++) {
        unsigned k = cluster[i] * 3;
        total[k] += (int)(points[2 * i] * 256);
        total[k + 1] += (int)(points[2 * i + 1] * 256);
        total[k + 2]++;
    }
    for (int i = 0; i < 48; i++) sums[i] += total[i];
}
