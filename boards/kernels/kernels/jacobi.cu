extern "C" __global__ void kernel(const float* __restrict__ input, const float* __restrict__ source, float* __restrict__ output, int n) {
    __shared__ float tile[10][34];
    int gx = blockIdx.x * 32 + threadIdx.x, gy = blockIdx.y * 8 + threadIdx.y, at = gy * n + gx;
    int x = threadIdx.x + 1, y = threadIdx.y + 1;
    tile[y][x] = input[at];
    if (threadIdx.x == 0) tile[y][0] = gx > 0 ? input[at - 1] : 0.0f;
    if (threadIdx.x == 31) tile[y][33] = gx + 1 < n ? input[at + 1] : 0.0f;
    if (threadIdx.y == 0) tile[0][x] = gy > 0 ? input[at - n] : 0.0f;
    if (threadIdx.y == 7) tile[9][x] = gy + 1 < n ? input[at + n] : 0.0f;
    __syncthreads();
    float force = source[at];
    for (int round = 0; round < 4; round++) {
        float next = 0.25f * (tile[y][x - 1] + tile[y][x + 1] + tile[y - 1][x] + tile[y + 1][x] - force);
        __syncthreads();
        tile[y][x] = next;
        __syncthreads();
    }
    output[at] = tile[y][x];
}
