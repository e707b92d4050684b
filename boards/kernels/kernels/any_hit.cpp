#include <algorithm>

extern "C" void run(void** b, long n) {
    const float *rays = (const float*)b[0], *boxes = (const float*)b[1];
    unsigned* first = (unsigned*)b[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        const float* r = rays + 4 * at;
        float inverse[3] = {1.0f / (r[3] - 0.5f), 1.0f / (r[1] - 0.5f), 1.0f / (r[2] - 0.5f)};
        unsigned hit = 256;
        for (int i = 0; i < 256; i++) {
            float near = 0.0f, far = 1e30f;
            for (int c = 0; c < 3; c++) {
                float low = boxes[8 * i + c] * 0.9f, high = low + boxes[8 * i + 4 + c] * 0.1f;
                float a = (low - r[c]) * inverse[c], z = (high - r[c]) * inverse[c];
                near = std::max(near, std::min(a, z));
                far = std::min(far, std::max(a, z));
            }
            if (far >= near) {
                hit = i;
                break;
            }
        }
        first[at] = hit;
    }
}
