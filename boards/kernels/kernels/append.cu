extern "C" __global__ void kernel(const unsigned* __restrict__ input, unsigned* __restrict__ count, unsigned* __restrict__ list, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at >= n) return;
    unsigned value = input[at];
    if (value > 0xc0000000u) {
        unsigned place = atomicAdd(count, 1);
        list[place % (unsigned)n] = 7;
    }
}
