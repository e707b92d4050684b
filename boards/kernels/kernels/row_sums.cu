extern "C" __global__ void kernel(const float* __restrict__ rows, float* __restrict__ sums, int n) {
    int row = blockIdx.x * 64 + threadIdx.x;
    if (row >= n) return;
    float sum = 0;
    for (int i = row * 64; i < row * 64 + 64; i++) sums[i] = sum += rows[i];
}
