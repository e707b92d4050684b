extern "C" __global__ void kernel(const unsigned* __restrict__ cells, unsigned* __restrict__ next, int n) {
    int px = blockIdx.x * 16 + threadIdx.x, py = blockIdx.y * 16 + threadIdx.y;
    if (px >= n || py >= n) return;
    unsigned count = 0;
    for (int dy = 0; dy < 3; dy++)
        for (int dx = 0; dx < 3; dx++) count += cells[(unsigned)(py + dy + n - 1) % n * n + (unsigned)(px + dx + n - 1) % n];
    unsigned alive = cells[py * n + px];
    count -= alive;
    next[py * n + px] = count == 3 || (count == 2 && alive == 1);
}
