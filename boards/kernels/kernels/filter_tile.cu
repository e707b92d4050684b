extern "C" __global__ void kernel(const float* __restrict__ weights, const float* __restrict__ picture, float* __restrict__ filtered, int n) {
    __shared__ float tile[400];
    int left = blockIdx.x * 16 - 2, top = blockIdx.y * 16 - 2;
    for (int i = threadIdx.y * 16 + threadIdx.x; i < 400; i += 256) {
        int x = min(max(left + i % 20, 0), n - 1), y = min(max(top + i / 20, 0), n - 1);
        tile[i] = picture[y * n + x];
    }
    __syncthreads();
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (column >= n || row >= n) return;
    float sum = 0;
    for (int y = 0; y < 5; y++)
        for (int x = 0; x < 5; x++) sum += weights[y * 5 + x] * tile[(threadIdx.y + y) * 20 + threadIdx.x + x];
    filtered[row * n + column] = sum;
}
