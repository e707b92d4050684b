extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
#pragma omp parallel for
    for (long id = 0; id < n; id++) {
        const float* in = input + id * 36;
        float* out = output + id * 36;
        float m[6][6];
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 6; j++) m[i][j] = in[i * 6 + j] + (i == j ? 4.0f : 0.0f);
        for (int k = 0; k < 6; k++)
            for (int i = k + 1; i < 6; i++) {
                m[i][k] /= m[k][k];
                for (int j = k + 1; j < 6; j++) m[i][j] -= m[i][k] * m[k][j];
            }
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 6; j++) out[i * 6 + j] = m[i][j];
    }
}
