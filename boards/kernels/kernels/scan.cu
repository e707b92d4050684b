extern "C" __global__ void kernel(const unsigned* __restrict__ input, unsigned* __restrict__ output, int n) {
    __shared__ unsigned tile[512];
    int i = blockIdx.x * 512 + threadIdx.x, t = threadIdx.x;
    tile[t] = input[i];
    __syncthreads();
    for (int step = 1; step < 512; step <<= 1) {
        unsigned left = t >= step ? tile[t - step] : 0;
        __syncthreads();
        tile[t] += left;
        __syncthreads();
    }
    output[i] = tile[t];
}
