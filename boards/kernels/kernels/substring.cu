__device__ unsigned byte_of(const unsigned* text, unsigned at) { return text[at / 4] >> (8 * (at % 4)) & 3; }

extern "C" __global__ void kernel(const unsigned* __restrict__ text, const unsigned* __restrict__ pattern, unsigned* __restrict__ counts, unsigned n) {
    __shared__ unsigned found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    unsigned id = blockIdx.x * 256 + threadIdx.x, length = n * 4;
    for (unsigned part = 0; part < 4; part++) {
        unsigned start = id * 4 + part;
        if (start + 6 <= length) {
            unsigned i = 0;
            while (i < 6 && byte_of(text, start + i) == (pattern[i / 4] >> (8 * (i % 4)) & 3)) i++;
            if (i == 6) atomicAdd(&found, 1);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = found;
}
