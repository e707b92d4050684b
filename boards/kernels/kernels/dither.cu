__constant__ unsigned bayer[16] = {0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5};

extern "C" __global__ void kernel(const float* __restrict__ image, unsigned* __restrict__ output, int n) {
    unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x >= n || y >= n) return;
    float threshold = ((float)bayer[(y % 4) * 4 + x % 4] + 0.5f) / 16.0f - 0.5f;
    float level = floorf(image[y * n + x] * 3.0f + threshold + 0.5f);
    output[y * n + x] = (unsigned)fminf(fmaxf(level, 0.0f), 3.0f);
}
