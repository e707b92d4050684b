__device__ inline float channel(unsigned x, int at) { return (x >> 8 * at & 255) / 255.0f; }
__device__ inline unsigned packed(float x, int at) { return (unsigned)floorf(0.5f + 255.0f * fminf(fmaxf(x, 0.0f), 1.0f)) << 8 * at; }

extern "C" __global__ void kernel(const unsigned* __restrict__ over, const unsigned* __restrict__ under, unsigned* __restrict__ blended, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at >= n) return;
    unsigned a = over[at], b = under[at], out = 0;
    float alpha = channel(a, 3);
    for (int c = 0; c < 4; c++) {
        float x = c == 3 ? 1.0f : channel(a, c), y = channel(b, c);
        out |= packed(y * (1.0f - alpha) + x * alpha, c);
    }
    blended[at] = out;
}
