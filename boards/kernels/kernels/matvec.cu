extern "C" __global__ void kernel(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = t; i < 4096; i += 64) sum += a[(size_t)blockIdx.x * 4096 + i] * x[i];
    tile[t] = sum;
    __syncthreads();
    for (int step = 32; step > 0; step >>= 1) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = tile[0];
}
