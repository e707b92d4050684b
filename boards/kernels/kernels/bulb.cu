__device__ float distance_to(float px, float py, float pz) {
    float x = px, y = py, z = pz, dr = 1, r = 0;
    for (int i = 0; i < 6; i++) {
        r = sqrtf(x * x + y * y + z * z);
        if (r > 2) break;
        float theta = acosf(z / r) * 8, phi = atan2f(y, x) * 8;
        dr = powf(r, 7.0f) * 8 * dr + 1;
        float zr = powf(r, 8.0f);
        x = zr * sinf(theta) * cosf(phi) + px;
        y = zr * sinf(phi) * sinf(theta) + py;
        z = zr * cosf(theta) + pz;
    }
    return 0.5f * logf(r) * r / dr;
}

__device__ float marched(int column, int row, int n) {
    float u = (column + 0.5f) / n * 2 - 1, v = (row + 0.5f) / n * 2 - 1;
    float length = sqrtf(u * u + v * v + 2.25f);
    float dx = u / length, dy = v / length, dz = 1.5f / length, t = 0;
    for (int step = 0; step < 48; step++) {
        float d = distance_to(t * dx, t * dy, -2.5f + t * dz);
        if (d < 0.001f || t > 5) break;
        t += d;
    }
    return t;
}

extern "C" __global__ void kernel(float* __restrict__ depth, int n) {
    int column = blockIdx.x * 8 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (column >= n || row >= n) return;
    depth[row * n + column] = marched(column, row, n);
}
