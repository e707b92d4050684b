__device__ float at(const float* __restrict__ input, int x, int y, int n) {
    return input[min(max(y, 0), n - 1) * n + min(max(x, 0), n - 1)];
}

extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x >= n || y >= n) return;
#define AT(x, y) at(input, x, y, n)
    float horizontal = AT(x + 1, y - 1) + 2.0f * AT(x + 1, y) + AT(x + 1, y + 1) - AT(x - 1, y - 1) - 2.0f * AT(x - 1, y) -
                       AT(x - 1, y + 1);
    float vertical = AT(x - 1, y + 1) + 2.0f * AT(x, y + 1) + AT(x + 1, y + 1) - AT(x - 1, y - 1) - 2.0f * AT(x, y - 1) -
                     AT(x + 1, y - 1);
    output[y * n + x] = fminf(sqrtf(horizontal * horizontal + vertical * vertical), 1.0f);
}
