__device__ float basis(int u, int x) { return (u == 0 ? 0.35355339f : 0.5f) * cosf((2 * x + 1) * u * 0.19634954f); }

extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output, int n) {
    __shared__ float tile[8][8], rows[8][8];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 8 + tx, y = blockIdx.y * 8 + ty;
    tile[ty][tx] = input[y * n + x] - 0.5f;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += tile[ty][k] * basis(tx, k);
    rows[ty][tx] = sum;
    __syncthreads();
    sum = 0;
    for (int k = 0; k < 8; k++) sum += rows[k][tx] * basis(ty, k);
    output[y * n + x] = sum;
}
