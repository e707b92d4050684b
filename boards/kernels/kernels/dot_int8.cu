extern "C" __global__ void kernel(const int* __restrict__ rows, const int* __restrict__ vector, int* __restrict__ sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int sum = 0;
    for (int k = 0; k < 64; k++) sum = __dp4a(rows[k * n + i], vector[k], sum);
    sums[i] = sum;
}
