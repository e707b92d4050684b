struct Sizes {
    unsigned m, n, k, unused;
};

extern "C" __global__ void kernel(const Sizes* __restrict__ sizes, const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c) {
    __shared__ float tileA[16][16], tileB[16][16];
    unsigned m = sizes->m, n = sizes->n, k = sizes->k;
    unsigned row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (unsigned t = 0; t < (k + 15) / 16; t++) {
        unsigned ka = t * 16 + threadIdx.x, kb = t * 16 + threadIdx.y;
        tileA[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
        tileB[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += tileA[threadIdx.y][i] * tileB[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}
