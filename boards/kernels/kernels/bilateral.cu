extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < 2 || y < 2 || x + 2 >= n || y + 2 >= n) return;
    float centre = input[y * n + x], sum = 0, weight = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) {
            float value = input[(y + dy) * n + x + dx], d = value - centre;
            float w = expf(-(float)(dx * dx + dy * dy) * 0.2f - d * d * 8.0f);
            sum += w * value;
            weight += w;
        }
    output[y * n + x] = sum / weight;
}
