extern "C" __global__ void kernel(const float* __restrict__ input, const float* __restrict__ weights, float* __restrict__ output,
                                  int n) {
    __shared__ float tile[16][40];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 32 + tx, y = blockIdx.y * 8 + ty;
    int plane = n * n, at = y * n + x;
    bool inside = x >= 4 && y >= 4 && x + 4 < n && y + 4 < n;
    float behind[4], ahead[4], now = input[4 * plane + at];
    for (int i = 0; i < 4; i++) {
        behind[i] = input[(3 - i) * plane + at];
        ahead[i] = input[(5 + i) * plane + at];
    }
    for (int z = 4; z + 4 < n; z++) {
        __syncthreads();
        tile[ty + 4][tx + 4] = now;
        if (ty < 4) {
            tile[ty][tx + 4] = input[z * plane + max(y, 4) * n - 4 * n + x];
            tile[ty + 12][tx + 4] = input[z * plane + min(y + 8, n - 1) * n + x];
        }
        if (tx < 4) {
            tile[ty + 4][tx] = input[z * plane + y * n + max(x, 4) - 4];
            tile[ty + 4][tx + 36] = input[z * plane + y * n + min(x + 32, n - 1)];
        }
        __syncthreads();
        float value = weights[0] * now;
#pragma unroll
        for (int i = 1; i <= 4; i++)
            value += weights[i] * (behind[i - 1] + ahead[i - 1] + tile[ty + 4 - i][tx + 4] + tile[ty + 4 + i][tx + 4] +
                                   tile[ty + 4][tx + 4 - i] + tile[ty + 4][tx + 4 + i]);
        if (inside) output[z * plane + at] = value;
#pragma unroll
        for (int i = 3; i > 0; i--) behind[i] = behind[i - 1];
        behind[0] = now;
        now = ahead[0];
#pragma unroll
        for (int i = 0; i < 3; i++) ahead[i] = ahead[i + 1];
        if (z + 5 < n) ahead[3] = input[(z + 5) * plane + at];
    }
}
