extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output) {
    __shared__ float greatest[128], sums[128];
    long row = (long)blockIdx.x * 1024;
    int t = threadIdx.x;
    float m = -1e30f, s = 0;
    for (int i = t; i < 1024; i += 128) {
        float x = input[row + i], most = fmaxf(m, x);
        s = s * expf(m - most) + expf(x - most);
        m = most;
    }
    greatest[t] = m;
    sums[t] = s;
    __syncthreads();
    for (int step = 64; step > 0; step >>= 1) {
        if (t < step) {
            float most = fmaxf(greatest[t], greatest[t + step]);
            sums[t] = sums[t] * expf(greatest[t] - most) + sums[t + step] * expf(greatest[t + step] - most);
            greatest[t] = most;
        }
        __syncthreads();
    }
    for (int i = t; i < 1024; i += 128) output[row + i] = expf(input[row + i] - greatest[0]) / sums[0];
}
