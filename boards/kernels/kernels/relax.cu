extern "C" __global__ void kernel(const uint2* __restrict__ edges, const unsigned* __restrict__ lengths, unsigned* __restrict__ longest, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at >= n) return;
    uint2 edge = edges[at];
    atomicMax(longest + edge.y, lengths[edge.x] + (edge.x & 15));
}
