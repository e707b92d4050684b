#define PAD(n) ((n) >> 5)

extern "C" __global__ void kernel(const float* __restrict__ in, float* __restrict__ out) {
    __shared__ float temp[512 + 16];
    int t = threadIdx.x, block = blockIdx.x * 512, ai = t, bi = t + 256, offset = 1;
    temp[ai + PAD(ai)] = in[block + ai];
    temp[bi + PAD(bi)] = in[block + bi];
    for (int d = 256; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
            a += PAD(a), b += PAD(b);
            temp[b] += temp[a];
        }
        offset *= 2;
    }
    if (t == 0) temp[511 + PAD(511)] = 0;
    for (int d = 1; d < 512; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
            a += PAD(a), b += PAD(b);
            float held = temp[a];
            temp[a] = temp[b];
            temp[b] += held;
        }
    }
    __syncthreads();
    out[block + ai] = temp[ai + PAD(ai)];
    out[block + bi] = temp[bi + PAD(bi)];
}
