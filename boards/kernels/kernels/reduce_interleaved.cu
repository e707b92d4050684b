extern "C" __global__ void kernel(const float* __restrict__ in, float* __restrict__ out, int n) {
    __shared__ float sdata[256];
    unsigned tid = threadIdx.x, i = blockIdx.x * 256 + tid;
    sdata[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned s = 1; s < 256; s *= 2) {
        if (tid % (2 * s) == 0) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sdata[0];
}
