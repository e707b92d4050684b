extern "C" __global__ void kernel(const unsigned* __restrict__ input, unsigned* __restrict__ output, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = input[i];
    for (int round = 0; round < 64; round++) {
        x = (x ^ 61) ^ (x >> 16);
        x = x + (x << 3);
        x = x ^ (x >> 4);
        x = x * 0x27d4eb2d;
        x = x ^ (x >> 15);
    }
    output[i] = x;
}
