__device__ inline int clamped(int y, int n) { return min(max(y, 0), n - 1); }

extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output, int n) {
    int x = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * 256;
    if (x >= n) return;
    float sum = 0;
    for (int y = first - 8; y <= first + 8; y++) sum += input[clamped(y, n) * n + x];
    int last = min(first + 256, n);
    for (int y = first; y < last; y++) {
        output[y * n + x] = sum / 17.0f;
        sum += input[clamped(y + 9, n) * n + x] - input[clamped(y - 8, n) * n + x];
    }
}
