extern "C" __global__ void kernel(unsigned* __restrict__ image, int n) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= n || py >= n) return;
    float cx = px * (3.0f / n) - 2.2f, cy = py * (3.0f / n) - 1.5f, x = 0, y = 0;
    unsigned i = 0;
    while (i < 256 && x * x + y * y < 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        i++;
    }
    image[py * n + px] = i;
}
