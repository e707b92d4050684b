#include <cmath>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const float *q = (const float*)b[0], *k = (const float*)b[1], *v = (const float*)b[2];
    float* o = (float*)b[3];
#pragma omp parallel for
    for (long head = 0; head < n; head++) {
        float scores[256], highest = -1e30f, total = 0, sums[64] = {};
        for (int t = 0; t < 256; t++) {
            float score = 0;
            for (int i = 0; i < 64; i++) score += q[head * 64 + i] * k[(head * 256 + t) * 64 + i];
            scores[t] = score * 0.125f;
            highest = std::max(highest, scores[t]);
        }
        for (int t = 0; t < 256; t++) {
            scores[t] = expf(scores[t] - highest);
            total += scores[t];
        }
        for (int t = 0; t < 256; t++)
            for (int i = 0; i < 64; i++) sums[i] += scores[t] * v[(head * 256 + t) * 64 + i];
        for (int i = 0; i < 64; i++) o[head * 64 + i] = sums[i] / total;
    }
}
