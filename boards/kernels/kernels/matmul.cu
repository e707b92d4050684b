extern "C" __global__ void kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ float at[8][128], bt[8][128];
    int t = threadIdx.y * 16 + threadIdx.x, row = blockIdx.y * 128, column = blockIdx.x * 128;
    float acc[8][8] = {};
    for (int k = 0; k < n; k += 8) {
        for (int s = 0; s < 4; s++) {
            int e = t + s * 256;
            at[e % 8][e / 8] = a[(row + e / 8) * n + k + e % 8];
            bt[e / 128][e % 128] = b[(k + e / 128) * n + column + e % 128];
        }
        __syncthreads();
        for (int kk = 0; kk < 8; kk++) {
            float x[8], y[8];
            for (int i = 0; i < 8; i++) {
                x[i] = at[kk][threadIdx.y * 8 + i];
                y[i] = bt[kk][threadIdx.x * 8 + i];
            }
            for (int i = 0; i < 8; i++)
                for (int j = 0; j < 8; j++) acc[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) c[(row + threadIdx.y * 8 + i) * n + column + threadIdx.x * 8 + j] = acc[i][j];
}
