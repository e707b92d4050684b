extern "C" void run(void** b, long n) {
    const float *lower = (const float*)b[0], *upper = (const float*)b[1], *right = (const float*)b[2];
    float *scratch = (float*)b[3], *solution = (float*)b[4];
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        float c = upper[i] / 4.0f, d = right[i] / 4.0f;
        scratch[i] = c;
        solution[i] = d;
        for (long k = 1; k < 64; k++) {
            long at = k * n + i;
            float a = lower[at], m = 1.0f / (4.0f - a * c);
            c = upper[at] * m;
            d = (right[at] - a * d) * m;
            scratch[at] = c;
            solution[at] = d;
        }
        for (long k = 62; k >= 0; k--) {
            long at = k * n + i;
            d = solution[at] - scratch[at] * d;
            solution[at] = d;
        }
    }
}
