extern "C" __global__ void kernel(const unsigned* __restrict__ input, unsigned* __restrict__ lengths, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    if (i > 0 && input[i - 1] == input[i]) {
        lengths[i] = 0;
        return;
    }
    int end = i + 1;
    while (end < n && input[end] == input[i]) end++;
    lengths[i] = end - i;
}
