extern "C" __global__ void kernel(const unsigned* __restrict__ row_ptr, const unsigned* __restrict__ col_idx,
                                  const float* __restrict__ vals, const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float sums[64];
    unsigned row = blockIdx.x, t = threadIdx.x, end = row_ptr[row + 1];
    float sum = 0;
    for (unsigned j = row_ptr[row] + t; j < end; j += 64) sum += vals[j] * x[col_idx[j]];
    sums[t] = sum;
    __syncthreads();
    for (unsigned stride = 32; stride > 0; stride /= 2) {
        if (t < stride) sums[t] += sums[t + stride];
        __syncthreads();
    }
    if (t == 0) y[row] = sums[0];
}
