#define FN static __device__ inline
#define MIN min
#define MAX max
FN float median(const float* __restrict__ src, int x, int y, int n) {
    float window[25];
    int count = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) {
            int sy = MIN(MAX(y + dy, 0), n - 1), sx = MIN(MAX(x + dx, 0), n - 1);
            float value = src[sy * n + sx];
            int k = count;
            while (k > 0 && window[k - 1] > value) {
                window[k] = window[k - 1];
                k--;
            }
            window[k] = value;
            count++;
        }
    return window[12];
}

extern "C" __global__ void kernel(const float* __restrict__ src, float* __restrict__ dst, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < n && y < n) dst[y * n + x] = median(src, x, y, n);
}
