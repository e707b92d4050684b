extern "C" __global__ void kernel(const int* __restrict__ a, const int* __restrict__ bt, const float* __restrict__ scales, float* __restrict__ c, int n) {
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y, words = n / 4;
    if (row >= n || column >= n) return;
    int sum = 0;
    for (int k = 0; k < words; k++) sum = __dp4a(a[row * words + k], bt[column * words + k], sum);
    c[row * n + column] = (float)sum * scales[row] * scales[column];
}
