extern "C" __global__ void kernel(const float4* __restrict__ points, const float4* __restrict__ centres,
                                  unsigned* __restrict__ nearest, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = points[i];
    float best = 3.4e38f;
    unsigned which = 0;
    for (unsigned k = 0; k < 32; k++) {
        float4 c = centres[k];
        float x = p.x - c.x, y = p.y - c.y, z = p.z - c.z, w = p.w - c.w;
        float distance = x * x + y * y + z * z + w * w;
        if (distance < best) {
            best = distance;
            which = k;
        }
    }
    nearest[i] = which;
}
