extern "C" __global__ void kernel(const unsigned* __restrict__ places, const float* __restrict__ values, unsigned* __restrict__ sums, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at >= n) return;
    unsigned* sum = sums + places[at];
    unsigned old = *(volatile unsigned*)sum;
    for (;;) {
        unsigned found = atomicCAS(sum, old, __float_as_uint(__uint_as_float(old) + values[at]));
        if (found == old) break;
        old = found;
    }
}
