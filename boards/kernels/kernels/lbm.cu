extern "C" __global__ void kernel(const float* __restrict__ before, float* __restrict__ after, int n) {
    const int dx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, dy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    const float weight[9] = {0.4444444f, 0.1111111f, 0.1111111f, 0.1111111f, 0.1111111f, 0.0277778f, 0.0277778f, 0.0277778f, 0.0277778f};
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x >= n || y >= n) return;
    float f[9], density = 0, u = 0, v = 0;
    for (int k = 0; k < 9; k++) {
        int from_x = (x - dx[k] + n) % n, from_y = (y - dy[k] + n) % n;
        f[k] = before[(k * n + from_y) * n + from_x];
        density += f[k];
        u += dx[k] * f[k];
        v += dy[k] * f[k];
    }
    u /= density;
    v /= density;
    float energy = 1.5f * (u * u + v * v);
    for (int k = 0; k < 9; k++) {
        float along = 3.0f * (dx[k] * u + dy[k] * v);
        float rest = weight[k] * density * (1.0f + along + 0.5f * along * along - energy);
        after[(k * n + y) * n + x] = f[k] + 0.6f * (rest - f[k]);
    }
}
