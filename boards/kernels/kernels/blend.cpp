#include <algorithm>
#include <cmath>

static inline float channel(unsigned x, int at) { return (x >> 8 * at & 255) / 255.0f; }
static inline unsigned packed(float x, int at) { return (unsigned)floorf(0.5f + 255.0f * std::min(std::max(x, 0.0f), 1.0f)) << 8 * at; }

extern "C" void run(void** buffers, long n) {
    const unsigned *over = (const unsigned*)buffers[0], *under = (const unsigned*)buffers[1];
    unsigned* blended = (unsigned*)buffers[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        unsigned a = over[at], b = under[at], out = 0;
        float alpha = channel(a, 3);
        for (int c = 0; c < 4; c++) {
            float x = c == 3 ? 1.0f : channel(a, c), y = channel(b, c);
            out |= packed(y * (1.0f - alpha) + x * alpha, c);
        }
        blended[at] = out;
    }
}
