extern "C" __global__ void kernel(const unsigned* __restrict__ starts, const unsigned* __restrict__ neighbours, const unsigned* __restrict__ before, unsigned* __restrict__ after, int n) {
    int node = blockIdx.x * 64 + threadIdx.x;
    if (node >= n) return;
    if (before[node] != 1) return;
    for (unsigned i = starts[node]; i < starts[node + 1]; i++)
        if (before[neighbours[i]] == 0) atomicExch(&after[neighbours[i]], 2u);
}
