extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output, int n) {
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= n) return;
    const float* in = input + (size_t)id * 36;
    float* out = output + (size_t)id * 36;
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
