#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* u0 = (const float*)b[0];
    float* __restrict__ u1 = (float*)b[1];
#pragma omp parallel for collapse(2)
    for (long z = 0; z < n; z++)
        for (long y = 0; y < n; y++)
            for (long x = 0; x < n; x++) {
                auto at = [&](long x, long y, long z) {
                    x = std::min(std::max(x, 0l), n - 1), y = std::min(std::max(y, 0l), n - 1), z = std::min(std::max(z, 0l), n - 1);
                    return u0[(z * n + y) * n + x];
                };
                float centre = at(x, y, z);
                float around = at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z) + at(x, y, z - 1) + at(x, y, z + 1);
                u1[(z * n + y) * n + x] = centre + 0.1f * (around - 6.0f * centre);
            }
}
