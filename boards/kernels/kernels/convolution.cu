extern "C" __global__ void kernel(const float* __restrict__ input, const float* __restrict__ weights,
                                  float* __restrict__ output, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < 2 || y < 2 || x + 2 >= n || y + 2 >= n) return;
    float sum = 0;
    for (int dy = 0; dy < 5; dy++)
        for (int dx = 0; dx < 5; dx++) sum += weights[dy * 5 + dx] * input[(y + dy - 2) * n + x + dx - 2];
    output[y * n + x] = sum;
}
