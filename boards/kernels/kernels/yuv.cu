extern "C" __global__ void kernel(const unsigned* __restrict__ bright, const unsigned* __restrict__ colour, unsigned* __restrict__ rgba, int n) {
    int at = blockIdx.x * 128 + threadIdx.x;
    if (at >= n) return;
    unsigned ys = bright[at], uvs = colour[at];
    for (unsigned i = 0; i < 4; i++) {
        float y = (float)((ys >> (8 * i)) & 255) - 16.0f, u = (float)((uvs >> (16 * (i / 2))) & 255) - 128.0f, v = (float)((uvs >> (16 * (i / 2) + 8)) & 255) - 128.0f;
        unsigned r = (unsigned)fminf(fmaxf(1.164f * y + 1.596f * v, 0.0f), 255.0f);
        unsigned g = (unsigned)fminf(fmaxf(1.164f * y - 0.813f * v - 0.391f * u, 0.0f), 255.0f);
        unsigned b = (unsigned)fminf(fmaxf(1.164f * y + 2.018f * u, 0.0f), 255.0f);
        rgba[4 * at + i] = r | g << 8 | b << 16 | 0xff000000u;
    }
}
