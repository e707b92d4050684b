extern "C" __global__ void kernel(const unsigned* __restrict__ kind, const unsigned* __restrict__ before, unsigned* __restrict__ after, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x >= n || y >= n) return;
    unsigned mine = kind[y * n + x], label = before[y * n + x];
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int qx = x + dx, qy = y + dy;
            if (qx < 0 || qy < 0 || qx >= n || qy >= n) continue;
            if (kind[qy * n + qx] == mine) label = min(label, before[qy * n + qx]);
        }
    after[y * n + x] = label;
}
