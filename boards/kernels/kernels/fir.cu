extern "C" __global__ void kernel(const float* __restrict__ input, const float* __restrict__ taps, float* __restrict__ output, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 31 > n) return;
    float sum = 0;
    for (int k = 0; k < 31; k++) sum += taps[k] * input[i + k];
    output[i] = sum;
}
