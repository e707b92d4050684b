#include <cmath>

static float basis(int u, int x) { return (u == 0 ? 0.35355339f : 0.5f) * std::cos((2 * x + 1) * u * 0.19634954f); }

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* __restrict__ output = (float*)b[1];
#pragma omp parallel for
    for (long by = 0; by < n; by += 8)
        for (long bx = 0; bx < n; bx += 8) {
            float rows[8][8];
            for (int y = 0; y < 8; y++)
                for (int x = 0; x < 8; x++) {
                    float sum = 0;
                    for (int k = 0; k < 8; k++) sum += (input[(by + y) * n + bx + k] - 0.5f) * basis(x, k);
                    rows[y][x] = sum;
                }
            for (int y = 0; y < 8; y++)
                for (int x = 0; x < 8; x++) {
                    float sum = 0;
                    for (int k = 0; k < 8; k++) sum += rows[k][x] * basis(y, k);
                    output[(by + y) * n + bx + x] = sum;
                }
        }
}
