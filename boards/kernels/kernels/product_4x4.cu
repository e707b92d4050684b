extern "C" __global__ void kernel(const float4* __restrict__ a, const float4* __restrict__ b, float4* __restrict__ c, int n) {
    __shared__ float tile_a[16][64];
    __shared__ float4 tile_b[16][16];
    float4 sums[4] = {};
    int index = threadIdx.y * 16 + threadIdx.x, row = index / 4, quarter = index % 4;
    for (int k = 0; k < n; k += 16) {
        float4 quad = a[((blockIdx.y * 64 + row) * n + k) / 4 + quarter];
        tile_a[quarter * 4][row] = quad.x;
        tile_a[quarter * 4 + 1][row] = quad.y;
        tile_a[quarter * 4 + 2][row] = quad.z;
        tile_a[quarter * 4 + 3][row] = quad.w;
        tile_b[threadIdx.y][threadIdx.x] = b[((k + threadIdx.y) * n + blockIdx.x * 64) / 4 + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 16; i++) {
            float4 right = tile_b[i][threadIdx.x];
            for (int j = 0; j < 4; j++) {
                float left = tile_a[i][threadIdx.y * 4 + j];
                sums[j].x += left * right.x;
                sums[j].y += left * right.y;
                sums[j].z += left * right.z;
                sums[j].w += left * right.w;
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++) c[((blockIdx.y * 64 + threadIdx.y * 4 + j) * n + blockIdx.x * 64) / 4 + threadIdx.x] = sums[j];
}
