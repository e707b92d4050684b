#include <algorithm>
extern "C" void run(void** b, long n) {
    const unsigned *bright = (const unsigned*)b[0], *colour = (const unsigned*)b[1];
    unsigned* __restrict__ rgba = (unsigned*)b[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        unsigned ys = bright[at], uvs = colour[at];
        for (unsigned i = 0; i < 4; i++) {
            float y = (float)((ys >> 8 * i) & 255) - 16, u = (float)((uvs >> 16 * (i / 2)) & 255) - 128, v = (float)((uvs >> (16 * (i / 2) + 8)) & 255) - 128;
            unsigned r = std::clamp(1.164f * y + 1.596f * v, 0.0f, 255.0f), g = std::clamp(1.164f * y - 0.813f * v - 0.391f * u, 0.0f, 255.0f), bl = std::clamp(1.164f * y + 2.018f * u, 0.0f, 255.0f);
            rgba[4 * at + i] = r | g << 8 | bl << 16 | 0xff000000u;
        }
    }
}
