extern "C" __global__ void kernel(const unsigned* __restrict__ input, unsigned* __restrict__ output) {
    __shared__ unsigned tile[1024];
    int start = blockIdx.x * 1024, t = threadIdx.x;
    tile[2 * t] = input[start + 2 * t];
    tile[2 * t + 1] = input[start + 2 * t + 1];
    int offset = 1;
    for (int d = 512; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) {
            int i = offset * (2 * t + 1) - 1, j = offset * (2 * t + 2) - 1;
            tile[j] += tile[i];
        }
        offset *= 2;
    }
    if (t == 0) tile[1023] = 0;
    for (int d = 1; d < 1024; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int i = offset * (2 * t + 1) - 1, j = offset * (2 * t + 2) - 1;
            unsigned held = tile[i];
            tile[i] = tile[j];
            tile[j] += held;
        }
    }
    __syncthreads();
    output[start + 2 * t] = tile[2 * t];
    output[start + 2 * t + 1] = tile[2 * t + 1];
}
