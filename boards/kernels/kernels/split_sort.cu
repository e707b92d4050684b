extern "C" __global__ void kernel(const unsigned* __restrict__ input, unsigned* __restrict__ output, int n) {
    __shared__ unsigned keys[256], sums[256];
    int local = threadIdx.x, id = blockIdx.x * 256 + local;
    keys[local] = input[id];
    __syncthreads();
    for (int bit = 0; bit < 8; bit++) {
        unsigned key = keys[local], is_zero = 1 - (key >> bit & 1);
        sums[local] = is_zero;
        __syncthreads();
        for (int step = 1; step < 256; step *= 2) {
            unsigned before = local >= step ? sums[local - step] : 0;
            __syncthreads();
            sums[local] += before;
            __syncthreads();
        }
        unsigned zeros = sums[255], rank = sums[local];
        unsigned place = is_zero ? rank - 1 : zeros + local - rank;
        __syncthreads();
        keys[place] = key;
        __syncthreads();
    }
    output[id] = keys[local];
}
