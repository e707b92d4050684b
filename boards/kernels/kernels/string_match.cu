extern "C" __global__ void kernel(const unsigned* __restrict__ letters, const unsigned* __restrict__ pattern,
                                  unsigned* __restrict__ found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 8 > n) return;
    unsigned matched = 1;
    for (int k = 0; k < 8; k++)
        if (letters[i + k] != pattern[k]) {
            matched = 0;
            break;
        }
    found[i] = matched;
}
