extern "C" __global__ void kernel(const unsigned* __restrict__ starts, const unsigned* __restrict__ columns,
                                  const float* __restrict__ values, const float* __restrict__ x, float* __restrict__ y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    float sum = 0;
    for (unsigned k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k]];
    y[row] = sum;
}
