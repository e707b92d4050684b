extern "C" __global__ void kernel(const float* __restrict__ before, const float* __restrict__ weights, float* __restrict__ after, int n) {
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, z = blockIdx.z * 4 + threadIdx.z;
    if (x == 0 || y == 0 || z == 0 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
    float sum = 0;
    for (int k = 0; k < 3; k++)
        for (int j = 0; j < 3; j++)
            for (int i = 0; i < 3; i++) sum += weights[(k * 3 + j) * 3 + i] * before[((z + k - 1) * n + y + j - 1) * n + x + i - 1];
    after[(z * n + y) * n + x] = sum;
}
