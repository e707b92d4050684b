extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output, int n) {
    __shared__ float tile[256];
    const int width = 4096, t = threadIdx.x;
    const float* row = input + (size_t)blockIdx.x * width;
    float* out = output + (size_t)blockIdx.x * width;
    float most = -3.4e38f;
    for (int i = t; i < width; i += 256) most = fmaxf(most, row[i]);
    tile[t] = most;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (t < step) tile[t] = fmaxf(tile[t], tile[t + step]);
        __syncthreads();
    }
    most = tile[0];
    __syncthreads();
    float sum = 0;
    for (int i = t; i < width; i += 256) sum += expf(row[i] - most);
    tile[t] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    float total = tile[0];
    for (int i = t; i < width; i += 256) out[i] = expf(row[i] - most) / total;
}
