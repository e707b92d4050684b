#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
    long small = n / 4 * 3;
#pragma omp parallel for
    for (long y = 0; y < n; y++)
        for (long x = 0; x < n; x++) {
            float px = std::max((x + 0.5f) * 0.75f - 0.5f, 0.0f), py = std::max((y + 0.5f) * 0.75f - 0.5f, 0.0f);
            long lx = std::min((long)px, small - 1), ly = std::min((long)py, small - 1);
            long hx = std::min(lx + 1, small - 1), hy = std::min(ly + 1, small - 1);
            float tx = px - lx, ty = py - ly;
            for (long c = 0; c < 4; c++) {
                auto in = [&](long y, long x) { return input[4 * (y * small + x) + c]; };
                float top = in(ly, lx) * (1 - tx) + in(ly, hx) * tx, bottom = in(hy, lx) * (1 - tx) + in(hy, hx) * tx;
                output[4 * (y * n + x) + c] = top * (1 - ty) + bottom * ty;
            }
        }
}
