extern "C" __global__ void kernel(const float* __restrict__ u0, float* __restrict__ u1, int n) {
    __shared__ float tile[6][10][10];
    int tx = threadIdx.x, ty = threadIdx.y, tz = threadIdx.z;
    int cx = blockIdx.x * 8 - 1, cy = blockIdx.y * 8 - 1, cz = blockIdx.z * 4 - 1;
    for (int i = (tz * 8 + ty) * 8 + tx; i < 600; i += 256) {
        int x = i % 10, y = i / 10 % 10, z = i / 100;
        int px = min(max(cx + x, 0), n - 1), py = min(max(cy + y, 0), n - 1), pz = min(max(cz + z, 0), n - 1);
        tile[z][y][x] = u0[(pz * n + py) * n + px];
    }
    __syncthreads();
    int x = tx + 1, y = ty + 1, z = tz + 1;
    float centre = tile[z][y][x];
    float around = tile[z][y][x - 1] + tile[z][y][x + 1] + tile[z][y - 1][x] + tile[z][y + 1][x] + tile[z - 1][y][x] + tile[z + 1][y][x];
    u1[((cz + z) * n + cy + y) * n + cx + x] = centre + 0.1f * (around - 6.0f * centre);
}
