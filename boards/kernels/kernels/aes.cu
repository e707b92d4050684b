__device__ inline unsigned turned(unsigned x, int bits) { return (x << bits) | (x >> (32 - bits)); }

__device__ inline unsigned column(const unsigned* table, unsigned a, unsigned b, unsigned c, unsigned d, unsigned key) {
    return table[a & 255] ^ turned(table[b >> 8 & 255], 8) ^ turned(table[c >> 16 & 255], 16) ^ turned(table[d >> 24], 24) ^ key;
}

extern "C" __global__ void kernel(const uint4* __restrict__ blocks, const unsigned* __restrict__ lookup, const uint4* __restrict__ keys, uint4* __restrict__ encrypted, int n) {
    __shared__ unsigned table[256];
    table[threadIdx.x] = lookup[threadIdx.x];
    __syncthreads();
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at >= n) return;
    uint4 s = blocks[at], k = keys[0];
    s.x ^= k.x; s.y ^= k.y; s.z ^= k.z; s.w ^= k.w;
    for (int round = 1; round <= 10; round++) {
        k = keys[round];
        s = make_uint4(column(table, s.x, s.y, s.z, s.w, k.x), column(table, s.y, s.z, s.w, s.x, k.y),
                       column(table, s.z, s.w, s.x, s.y, k.z), column(table, s.w, s.x, s.y, s.z, k.w));
    }
    encrypted[at] = s;
}
