extern "C" __global__ void kernel(const float* __restrict__ matrices, float* __restrict__ factors, int n) {
    int id = blockIdx.x * 64 + threadIdx.x, base = id * 64;
    if (id >= n) return;
    float l[8][8] = {};
    for (int i = 0; i < 8; i++)
        for (int j = 0; j <= i; j++) l[i][j] = matrices[base + i * 8 + j] + (i == j ? 8.0f : 0.0f);
    for (int j = 0; j < 8; j++) {
        float d = l[j][j];
        for (int k = 0; k < j; k++) d -= l[j][k] * l[j][k];
        float root = sqrtf(d);
        l[j][j] = root;
        for (int i = j + 1; i < 8; i++) {
            float s = l[i][j];
            for (int k = 0; k < j; k++) s -= l[i][k] * l[j][k];
            l[i][j] = s / root;
        }
    }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) factors[base + i * 8 + j] = l[i][j];
}
