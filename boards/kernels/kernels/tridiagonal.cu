extern "C" __global__ void kernel(const float* __restrict__ lower, const float* __restrict__ upper, const float* __restrict__ right,
                                  float* __restrict__ scratch, float* __restrict__ solution, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    float c = upper[i] / 4.0f, d = right[i] / 4.0f;
    scratch[i] = c;
    solution[i] = d;
    for (int k = 1; k < 64; k++) {
        int at = k * n + i;
        float a = lower[at], m = 1.0f / (4.0f - a * c);
        c = upper[at] * m;
        d = (right[at] - a * d) * m;
        scratch[at] = c;
        solution[at] = d;
    }
    for (int k = 62; k >= 0; k--) {
        int at = k * n + i;
        d = solution[at] - scratch[at] * d;
        solution[at] = d;
    }
}
