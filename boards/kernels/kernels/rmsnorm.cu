extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output, int n) {
    __shared__ float tile[256];
    const int width = 1024, t = threadIdx.x;
    const float* row = input + (size_t)blockIdx.x * width;
    float sum = 0;
    for (int i = t; i < width; i += 256) sum += row[i] * row[i];
    tile[t] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (t < step) tile[t] += tile[t + step];
        __syncthreads();
    }
    float scale = rsqrtf(tile[0] / width + 1e-5f);
    for (int i = t; i < width; i += 256) output[(size_t)blockIdx.x * width + i] = row[i] * scale;
}
