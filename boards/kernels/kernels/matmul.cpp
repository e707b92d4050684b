extern "C" void run(void** p, long n) {
    const float *a = (const float*)p[0], *b = (const float*)p[1];
    float* c = (float*)p[2];
#pragma omp parallel for
    for (long ib = 0; ib < n; ib += 8)
        for (long jb = 0; jb < n; jb += 64) {
            float acc[8][64] = {};
            for (long k = 0; k < n; k++)
                for (int i = 0; i < 8; i++)
                    for (int j = 0; j < 64; j++) acc[i][j] += a[(ib + i) * n + k] * b[k * n + jb + j];
            for (int i = 0; i < 8; i++)
                for (int j = 0; j < 64; j++) c[(ib + i) * n + jb + j] = acc[i][j];
        }
}
