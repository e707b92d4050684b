extern "C" __global__ void kernel(const float* __restrict__ rows, unsigned* __restrict__ found, int n) {
    int row = blockIdx.x * 64 + threadIdx.x;
    if (row >= n) return;
    float best = rows[row * 256];
    unsigned at = 0;
    for (unsigned i = 1; i < 256; i++) {
        float value = rows[row * 256 + i];
        if (value > best) {
            best = value;
            at = i;
        }
    }
    found[row] = at;
}
