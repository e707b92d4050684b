extern "C" __global__ void kernel(const float4* __restrict__ rays, const float4* __restrict__ boxes, unsigned* __restrict__ first, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at >= n) return;
    float4 r = rays[at];
    float ix = 1.0f / (r.w - 0.5f), iy = 1.0f / (r.y - 0.5f), iz = 1.0f / (r.z - 0.5f);
    unsigned hit = 256;
    for (int i = 0; i < 256; i++) {
        float4 p = boxes[2 * i], q = boxes[2 * i + 1];
        float lx = p.x * 0.9f, ly = p.y * 0.9f, lz = p.z * 0.9f;
        float ax = (lx - r.x) * ix, bx = (lx + q.x * 0.1f - r.x) * ix;
        float ay = (ly - r.y) * iy, by = (ly + q.y * 0.1f - r.y) * iy;
        float az = (lz - r.z) * iz, bz = (lz + q.z * 0.1f - r.z) * iz;
        float near = fmaxf(fmaxf(fminf(ax, bx), fminf(ay, by)), fminf(az, bz));
        float far = fminf(fminf(fmaxf(ax, bx), fmaxf(ay, by)), fmaxf(az, bz));
        if (far >= fmaxf(near, 0.0f)) {
            hit = i;
            break;
        }
    }
    first[at] = hit;
}
