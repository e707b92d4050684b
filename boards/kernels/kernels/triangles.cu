extern "C" __global__ void kernel(const float* __restrict__ corners, float* __restrict__ normals, float* __restrict__ areas, int n) {
    int at = blockIdx.x * 64 + threadIdx.x;
    if (at >= n) return;
    const float* c = corners + 3 * at;
    float ux = c[3] - c[0], uy = c[4] - c[1], uz = c[5] - c[2], vx = c[6] - c[0], vy = c[7] - c[1], vz = c[8] - c[2];
    float x = uy * vz - uz * vy, y = uz * vx - ux * vz, z = ux * vy - uy * vx;
    float size = sqrtf(x * x + y * y + z * z);
    areas[at] = 0.5f * size;
    float by = fmaxf(size, 1e-20f);
    normals[3 * at] = x / by;
    normals[3 * at + 1] = y / by;
    normals[3 * at + 2] = z / by;
}
