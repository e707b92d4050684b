extern "C" __global__ void kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ float left[16][16], right[16][16];
    int x = threadIdx.x, y = threadIdx.y, at = blockIdx.x * 256 + y * 16 + x;
    left[y][x] = a[at];
    right[y][x] = b[at];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += left[y][k] * right[k][x];
    c[at] = sum;
}
