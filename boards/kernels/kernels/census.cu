extern "C" __global__ void kernel(const unsigned char* __restrict__ image, unsigned* __restrict__ codes, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x < 3 || y < 2 || x >= n - 3 || y >= n - 2) return;
    unsigned middle = image[y * n + x], code = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -3; dx <= 3; dx++) {
            if (dx == 0 && dy == 0) continue;
            code = code << 1 | (image[(y + dy) * n + x + dx] < middle);
        }
    codes[y * n + x] = code;
}
