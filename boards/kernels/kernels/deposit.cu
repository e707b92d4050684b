extern "C" __global__ void kernel(const float4* __restrict__ particles, int* __restrict__ charge, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    float4 p = particles[i];
    float x = p.x * 254.0f, y = p.y * 254.0f;
    float fx = x - floorf(x), fy = y - floorf(y);
    unsigned at = (unsigned)floorf(y) * 256 + (unsigned)floorf(x);
    atomicAdd(&charge[at], (int)((1.0f - fx) * (1.0f - fy) * 1024.0f));
    atomicAdd(&charge[at + 1], (int)(fx * (1.0f - fy) * 1024.0f));
    atomicAdd(&charge[at + 256], (int)((1.0f - fx) * fy * 1024.0f));
    atomicAdd(&charge[at + 257], (int)(fx * fy * 1024.0f));
}
