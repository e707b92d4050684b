struct Params {
    float drift, volatility, strike;
    unsigned seed;
};

__device__ unsigned pcg(unsigned x) {
    unsigned state = x * 747796405u + 2891336453u;
    unsigned word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
    return word >> 22 ^ word;
}

__device__ float uniform_of(unsigned x) { return ((float)(x >> 9) + 0.5f) / 8388608.0f; }

__device__ float value(const Params& params, unsigned id) {
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

extern "C" __global__ void kernel(const Params* __restrict__ params, float* __restrict__ values, int n) {
    int id = blockIdx.x * 128 + threadIdx.x;
    if (id < n) values[id] = value(*params, id);
}
