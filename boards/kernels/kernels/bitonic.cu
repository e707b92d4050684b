extern "C" __global__ void kernel(const unsigned* __restrict__ input, unsigned* __restrict__ output, int n) {
    __shared__ unsigned keys[512];
    int start = blockIdx.x * 512, t = threadIdx.x;
    keys[t] = input[start + t];
    keys[t + 256] = input[start + t + 256];
    __syncthreads();
    for (int size = 2; size <= 512; size <<= 1)
        for (int stride = size >> 1; stride > 0; stride >>= 1) {
            int i = 2 * t - (t & (stride - 1)), j = i + stride;
            bool up = (i & size) == 0;
            unsigned a = keys[i], b = keys[j];
            if ((a > b) == up) {
                keys[i] = b;
                keys[j] = a;
            }
            __syncthreads();
        }
    output[start + t] = keys[t];
    output[start + t + 256] = keys[t + 256];
}
