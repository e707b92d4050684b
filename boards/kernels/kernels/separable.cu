extern "C" __global__ void kernel(const float* __restrict__ input, const float* __restrict__ weights, float* __restrict__ output,
                                  int n) {
    __shared__ float tile[4][160];
    int tx = threadIdx.x, ty = threadIdx.y, first = blockIdx.x * 128, row = (blockIdx.y * 4 + ty) * n;
#pragma unroll
    for (int i = 0; i < 10; i++) {
        int x = first + i * 16 + tx - 16;
        tile[ty][i * 16 + tx] = x >= 0 && x < n ? input[row + x] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 1; i < 9; i++) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 17; j++) sum += weights[j] * tile[ty][i * 16 + tx + j - 8];
        output[row + first + (i - 1) * 16 + tx] = sum;
    }
}
