extern "C" __global__ void kernel(const float2* __restrict__ points, const float2* __restrict__ places, float* __restrict__ nearest, int n) {
    __shared__ float2 tile[256];
    int at = blockIdx.x * 256 + threadIdx.x;
    float best[8];
    for (int i = 0; i < 8; i++) best[i] = 1e30f;
    float2 own = points[at];
    for (int first = 0; first < 1024; first += 256) {
        tile[threadIdx.x] = places[first + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 256; i++) {
            float x = tile[i].x - own.x, y = tile[i].y - own.y, d = x * x + y * y;
            if (d < best[7])
                for (int j = 0; j < 8; j++) {
                    float kept = fminf(d, best[j]);
                    d = fmaxf(d, best[j]);
                    best[j] = kept;
                }
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; i++) nearest[at * 8 + i] = sqrtf(best[i]);
}
