extern "C" __global__ void kernel(const float2* __restrict__ input, float2* __restrict__ output, int n) {
    __shared__ float2 data[1024];
    int start = blockIdx.x * 1024;
    for (int i = threadIdx.x; i < 1024; i += 256) data[__brev(i) >> 22] = input[start + i];
    __syncthreads();
    for (int half = 1; half < 1024; half <<= 1) {
        for (int t = threadIdx.x; t < 512; t += 256) {
            int k = t & (half - 1), i = 2 * t - k;
            float s, c;
            sincosf(-3.14159265f * k / half, &s, &c);
            float2 a = data[i], b = data[i + half];
            float2 m = make_float2(c * b.x - s * b.y, c * b.y + s * b.x);
            data[i] = make_float2(a.x + m.x, a.y + m.y);
            data[i + half] = make_float2(a.x - m.x, a.y - m.y);
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < 1024; i += 256) output[start + i] = data[i];
}
