#include <algorithm>
#include <cmath>

extern "C" void run(void** b, long n) {
    const float *points = (const float*)b[0], *places = (const float*)b[1];
    float* nearest = (float*)b[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        float best[8];
        for (int i = 0; i < 8; i++) best[i] = 1e30f;
        float px = points[2 * at], py = points[2 * at + 1];
        for (int i = 0; i < 1024; i++) {
            float x = places[2 * i] - px, y = places[2 * i + 1] - py, d = x * x + y * y;
            if (d < best[7])
                for (int j = 0; j < 8; j++) {
                    float kept = std::min(d, best[j]);
                    d = std::max(d, best[j]);
                    best[j] = kept;
                }
        }
        for (int i = 0; i < 8; i++) nearest[at * 8 + i] = sqrtf(best[i]);
    }
}
