extern "C" __global__ void kernel(const unsigned* __restrict__ index, const float* __restrict__ table,
                                  float* __restrict__ output, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) output[i] = table[index[i]];
}
