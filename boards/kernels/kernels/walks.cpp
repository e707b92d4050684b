#include <cmath>

struct Params {
    float drift, volatility, strike;
    unsigned seed;
};

static inline unsigned pcg(unsigned x) {
    unsigned state = x * 747796405u + 2891336453u;
    unsigned word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
    return word >> 22 ^ word;
}

static inline float uniform_of(unsigned x) { return ((float)(x >> 9) + 0.5f) / 8388608.0f; }

static inline float value(const Params& params, unsigned id) {
    unsigned seed = pcg(id ^ params.seed);
    float total = 0;
    for (int walk = 0; walk < 4; walk++) {
        float price = 100, sum = 0;
        for (int step = 0; step < 32; step += 2) {
            seed = pcg(seed);
            float u = uniform_of(seed);
            seed = pcg(seed);
            float v = uniform_of(seed) * 6.2831853f;
            float radius = sqrtf(-2.0f * logf(u));
            price *= expf(params.drift + params.volatility * radius * cosf(v));
            sum += price;
            price *= expf(params.drift + params.volatility * radius * sinf(v));
            sum += price;
        }
        total += fmaxf(sum / 32 - params.strike, 0.0f);
    }
    return total / 4;
}

extern "C" void run(void** b, long n) {
    const Params params = *(const Params*)b[0];
    float* values = (float*)b[1];
#pragma omp parallel for
    for (long id = 0; id < n; id++) values[id] = value(params, id);
}
