#include <cmath>
#include <cstdint>
#include <algorithm>

static inline float scene(float x, float y, float z) {
    float by = y - 0.2f, ball = sqrtf(x * x + by * by + z * z) - 0.7f;
    float qx = fabsf(x - 0.9f) - 0.35f, qy = fabsf(y + 0.1f) - 0.35f, qz = fabsf(z - 0.4f) - 0.35f;
    float mx = std::max(qx, 0.0f), my = std::max(qy, 0.0f), mz = std::max(qz, 0.0f);
    float box = sqrtf(mx * mx + my * my + mz * mz) + std::min(std::max(qx, std::max(qy, qz)), 0.0f);
    return std::min(std::min(ball, box), y + 0.5f);
}

extern "C" void run(void** b, long n) {
    float* image = (float*)b[0];
#pragma omp parallel for schedule(dynamic)
    for (long py = 0; py < n; py++)
        for (long px = 0; px < n; px++) {
            float u = 2.0f * px / n - 1.0f, v = 1.0f - 2.0f * py / n, s = 1.0f / sqrtf(u * u + v * v + 2.25f), t = 0;
            float dx = u * s, dy = v * s, dz = 1.5f * s;
            for (int i = 0; i < 64; i++) {
                float d = scene(dx * t, 0.3f + dy * t, -3.0f + dz * t);
                if (d < 0.001f || t > 20.0f) break;
                t += d;
            }
            image[py * n + px] = expf(-0.2f * t);
        }
}
