extern "C" void run(void** b, long size) {
    const float* before = (const float*)b[0];
    float* after = (float*)b[1];
    const int n = size;
    static const int dx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, dy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    static const float weight[9] = {0.4444444f, 0.1111111f, 0.1111111f, 0.1111111f, 0.1111111f, 0.0277778f, 0.0277778f, 0.0277778f, 0.0277778f};
#pragma omp parallel for
    for (int y = 0; y < n; y++)
        for (int x = 0; x < n; x++) {
            float f[9], density = 0, u = 0, v = 0;
            for (int k = 0; k < 9; k++) {
                int from_x = (x - dx[k] + n) % n, from_y = (y - dy[k] + n) % n;
                f[k] = before[((long)k * n + from_y) * n + from_x];
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
                after[((long)k * n + y) * n + x] = f[k] + 0.6f * (rest - f[k]);
            }
        }
}
