struct Pass {
    int n, p, unused[2];
};

extern "C" __global__ void kernel(const Pass* __restrict__ pass, const float2* __restrict__ before, float2* __restrict__ after) {
    int p = pass->p, quarter = pass->n / 4, i = blockIdx.x * 64 + threadIdx.x;
    if (i >= quarter) return;
    int k = i & (p - 1), j = ((i - k) << 2) + k;
    float angle = -1.5707963f * (float)k / (float)p;
    float ux[4], uy[4];
    for (int q = 0; q < 4; q++) {
        float c = cosf(q * angle), s = sinf(q * angle);
        float2 v = before[i + q * quarter];
        float x = v.x, y = v.y;
        ux[q] = x * c - y * s;
        uy[q] = x * s + y * c;
    }
    float ax = ux[0] + ux[2], ay = uy[0] + uy[2], bx = ux[0] - ux[2], by = uy[0] - uy[2];
    float cx = ux[1] + ux[3], cy = uy[1] + uy[3], dx = uy[1] - uy[3], dy = ux[3] - ux[1];
    after[j] = make_float2(ax + cx, ay + cy);
    after[j + p] = make_float2(bx + dx, by + dy);
    after[j + 2 * p] = make_float2(ax - cx, ay - cy);
    after[j + 3 * p] = make_float2(bx - dx, by - dy);
}
