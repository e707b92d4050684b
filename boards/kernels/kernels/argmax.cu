struct Best {
    float value;
    unsigned place;
};

__device__ inline Best better(Best a, Best b) {
    return b.value > a.value || (b.value == a.value && b.place < a.place) ? b : a;
}

extern "C" __global__ void kernel(const float* __restrict__ input, unsigned* __restrict__ places, int n) {
    __shared__ Best found[256];
    int local = threadIdx.x;
    Best best = {-1e30f, 0};
    for (unsigned i = local; i < 4096; i += 256) best = better(best, Best{input[blockIdx.x * 4096 + i], i});
    found[local] = best;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (local < half) found[local] = better(found[local], found[local + half]);
        __syncthreads();
    }
    if (local == 0) places[blockIdx.x] = found[0].place;
}
