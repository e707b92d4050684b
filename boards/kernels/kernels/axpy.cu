extern "C" __global__ void kernel(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = 2.5f * x[i] + y[i];
}
