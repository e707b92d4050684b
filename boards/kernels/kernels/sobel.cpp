#include <algorithm>
#include <cmath>

extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* __restrict__ output = (float*)b[1];
    auto at = [&](long x, long y) { return input[std::clamp(y, 0L, n - 1) * n + std::clamp(x, 0L, n - 1)]; };
#pragma omp parallel for
    for (long y = 0; y < n; y++)
        for (long x = 0; x < n; x++) {
            float horizontal = at(x + 1, y - 1) + 2.0f * at(x + 1, y) + at(x + 1, y + 1) - at(x - 1, y - 1) - 2.0f * at(x - 1, y) -
                               at(x - 1, y + 1);
            float vertical = at(x - 1, y + 1) + 2.0f * at(x, y + 1) + at(x + 1, y + 1) - at(x - 1, y - 1) - 2.0f * at(x, y - 1) -
                             at(x + 1, y - 1);
            output[y * n + x] = std::min(std::sqrt(horizontal * horizontal + vertical * vertical), 1.0f);
        }
}
