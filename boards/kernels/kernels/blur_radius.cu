struct Params {
    int width, height, radius, unused;
};

__device__ unsigned packed(float x) { return (unsigned)floorf(0.5f + 255.0f * fminf(fmaxf(x, 0.0f), 1.0f)); }

extern "C" __global__ void kernel(const Params* __restrict__ params, const unsigned* __restrict__ source, unsigned* __restrict__ blurred) {
    int width = params->width, height = params->height, r = params->radius;
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (column >= width || row >= height) return;
    float sum[4] = {0, 0, 0, 0}, count = 0;
    for (int dy = -r; dy <= r; dy++)
        for (int dx = -r; dx <= r; dx++) {
            int x = column + dx, y = row + dy;
            if (x >= 0 && y >= 0 && x < width && y < height) {
                unsigned word = source[y * width + x];
                for (int i = 0; i < 4; i++) sum[i] += (word >> (8 * i) & 255) / 255.0f;
                count += 1;
            }
        }
    unsigned word = 0;
    for (int i = 0; i < 4; i++) word |= packed(sum[i] / count) << (8 * i);
    blurred[row * width + column] = word;
}
