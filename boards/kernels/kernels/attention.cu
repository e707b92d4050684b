extern "C" __global__ void kernel(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, float* __restrict__ o) {
    __shared__ float query[64], scores[256], scratch[256];
    unsigned t = threadIdx.x, head = blockIdx.x;
    if (t < 64) query[t] = q[head * 64 + t];
    __syncthreads();
    float score = 0;
    for (unsigned i = 0; i < 64; i++) score += query[i] * k[(head * 256 + t) * 64 + i];
    score *= 0.125f;
    scratch[t] = score;
    __syncthreads();
    for (unsigned s = 128; s > 0; s >>= 1) {
        if (t < s) scratch[t] = fmaxf(scratch[t], scratch[t + s]);
        __syncthreads();
    }
    float highest = scratch[0];
    __syncthreads();
    float e = expf(score - highest);
    scores[t] = e;
    scratch[t] = e;
    __syncthreads();
    for (unsigned s = 128; s > 0; s >>= 1) {
        if (t < s) scratch[t] += scratch[t + s];
        __syncthreads();
    }
    float total = scratch[0];
    if (t < 64) {
        float sum = 0;
        for (unsigned j = 0; j < 256; j++) sum += scores[j] * v[(head * 256 + j) * 64 + t];
        o[head * 64 + t] = sum / total;
    }
}
