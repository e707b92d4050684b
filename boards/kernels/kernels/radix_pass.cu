struct Params {
    unsigned shift, a, b, c;
};
#define THREADS 256
#define KEYS 4
#define RADIX 16

extern "C" __global__ void kernel(const Params* __restrict__ params, const unsigned* __restrict__ in, unsigned* __restrict__ out,
                                  unsigned* __restrict__ digit_counts) {
    __shared__ unsigned counters[RADIX * THREADS], partial[THREADS], sorted[THREADS * KEYS];
    unsigned t = threadIdx.x, shift = params->shift, base = blockIdx.x * THREADS * KEYS + t * KEYS;
    for (int d = 0; d < RADIX; d++) counters[d * THREADS + t] = 0;
    unsigned keys[KEYS], ranks[KEYS];
    for (int k = 0; k < KEYS; k++) {
        keys[k] = in[base + k];
        unsigned c = (keys[k] >> shift & (RADIX - 1)) * THREADS + t;
        ranks[k] = counters[c];
        counters[c] = ranks[k] + 1;
    }
    __syncthreads();
    unsigned sum = 0;
    for (int j = 0; j < RADIX; j++) {
        unsigned c = t * RADIX + j, count = counters[c];
        counters[c] = sum;
        sum += count;
    }
    partial[t] = sum;
    __syncthreads();
    for (unsigned offset = 1; offset < THREADS; offset *= 2) {
        unsigned add = t >= offset ? partial[t - offset] : 0;
        __syncthreads();
        partial[t] += add;
        __syncthreads();
    }
    unsigned before = partial[t] - sum;
    for (int j = 0; j < RADIX; j++) counters[t * RADIX + j] += before;
    __syncthreads();
    for (int k = 0; k < KEYS; k++) sorted[counters[(keys[k] >> shift & (RADIX - 1)) * THREADS + t] + ranks[k]] = keys[k];
    __syncthreads();
    for (int k = 0; k < KEYS; k++) out[blockIdx.x * THREADS * KEYS + k * THREADS + t] = sorted[k * THREADS + t];
    if (t < RADIX) {
        unsigned next = t + 1 < RADIX ? counters[(t + 1) * THREADS] : THREADS * KEYS;
        digit_counts[blockIdx.x * RADIX + t] = next - counters[t * THREADS];
    }
}
