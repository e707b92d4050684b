struct Page {
    float rank;
    float links;
};

extern "C" __global__ void kernel(const unsigned* __restrict__ starts, const unsigned* __restrict__ sources, const Page* __restrict__ pages, float* __restrict__ ranks, int n) {
    int page = blockIdx.x * 128 + threadIdx.x;
    if (page >= n) return;
    float sum = 0;
    unsigned end = starts[page + 1];
    for (unsigned edge = starts[page]; edge < end; edge++) {
        Page source = pages[sources[edge]];
        sum += source.rank / (source.links + 1.0f);
    }
    ranks[page] = 0.15f + 0.85f * sum;
}
