extern "C" __global__ void kernel(const unsigned* __restrict__ table, const unsigned* __restrict__ queries, unsigned* __restrict__ places, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    unsigned wanted = queries[i], low = 0, high = 1 << 16;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (table[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    places[i] = low;
}
