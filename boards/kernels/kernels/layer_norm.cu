extern "C" __global__ void kernel(const float* __restrict__ input, const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ output, int) {
    __shared__ float partial[128];
    int start = blockIdx.x * 1024, lane = threadIdx.x;
    float sum = 0;
    for (int i = lane; i < 1024; i += 128) sum += input[start + i];
    partial[lane] = sum;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (lane < s) partial[lane] += partial[lane + s];
        __syncthreads();
    }
    float mean = partial[0] / 1024.0f;
    __syncthreads();
    float squares = 0;
    for (int i = lane; i < 1024; i += 128) {
        float d = input[start + i] - mean;
        squares += d * d;
    }
    partial[lane] = squares;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (lane < s) partial[lane] += partial[lane + s];
        __syncthreads();
    }
    float scale = rsqrtf(partial[0] / 1024.0f + 1e-5f);
    for (int i = lane; i < 1024; i += 128) output[start + i] = (input[start + i] - mean) * scale * weight[i] + bias[i];
}
