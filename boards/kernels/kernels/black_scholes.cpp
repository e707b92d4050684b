#include <cmath>
#include <cstdint>
#include <algorithm>

static inline float cnd(float d) {
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float poly = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    float c = 0.39894228f * expf(-0.5f * d * d) * poly;
    return d > 0 ? 1.0f - c : c;
}

extern "C" void run(void** b, long n) {
    const float *price = (const float*)b[0], *strike = (const float*)b[1], *years = (const float*)b[2];
    float *__restrict__ call = (float*)b[3], *__restrict__ put = (float*)b[4];
    const float rate = 0.02f, volatility = 0.3f;
#pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        float s = price[i] * 25.0f + 5.0f, x = strike[i] * 99.0f + 1.0f, t = years[i] * 9.75f + 0.25f;
        float root = sqrtf(t);
        float d1 = (logf(s / x) + (rate + 0.5f * volatility * volatility) * t) / (volatility * root);
        float d2 = d1 - volatility * root;
        float c1 = cnd(d1), c2 = cnd(d2), discount = expf(-rate * t);
        call[i] = s * c1 - x * discount * c2;
        put[i] = x * discount * (1.0f - c2) - s * (1.0f - c1);
    }
}
