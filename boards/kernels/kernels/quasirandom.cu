__device__ float inverse_normal(float p) {
    float y = p - 0.5f;
    if (fabsf(y) < 0.42f) {
        float z = y * y;
        return y * (((-25.44106049637f * z + 41.39119773534f) * z - 18.61500062529f) * z + 2.50662823884f) /
               ((((3.13082909833f * z - 21.06224101826f) * z + 23.08336743743f) * z - 8.47351093090f) * z + 1.0f);
    }
    float r = logf(-logf(y > 0 ? 1.0f - p : p));
    float z = 0.3374754822726147f +
              r * (0.9761690190917186f +
                   r * (0.1607979714918209f +
                        r * (0.0276438810333863f +
                             r * (0.0038405729373609f +
                                  r * (0.0003951896511919f +
                                       r * (0.0000321767881768f + r * (0.0000002888167364f + r * 0.0000003960315187f)))))));
    return y > 0 ? z : -z;
}

extern "C" __global__ void kernel(const unsigned* __restrict__ directions, float* __restrict__ output, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned gray = i ^ (i >> 1), bits = 0;
    for (int k = 0; k < 32; k++)
        if (gray & (1u << k)) bits ^= directions[k];
    output[i] = inverse_normal(((bits >> 8) + 0.5f) * 5.9604645e-8f);
}
