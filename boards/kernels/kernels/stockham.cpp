#include <cmath>

struct Pass {
    int n, p, unused[2];
};

extern "C" void run(void** b, long) {
    const Pass pass = *(const Pass*)b[0];
    const float* before = (const float*)b[1];
    float* after = (float*)b[2];
    long p = pass.p, quarter = pass.n / 4;
#pragma omp parallel for
    for (long i = 0; i < quarter; i++) {
        long k = i & (p - 1), j = ((i - k) << 2) + k;
    float angle = -1.5707963f * (float)k / (float)p;
    float ux[4], uy[4];
    for (int q = 0; q < 4; q++) {
        float c = cosf(q * angle), s = sinf(q * angle), x = before[2 * (i + q * quarter)], y = before[2 * (i + q * quarter) + 1];
        ux[q] = x * c - y * s;
        uy[q] = x * s + y * c;
    }
    float ax = ux[0] + ux[2], ay = uy[0] + uy[2], bx = ux[0] - ux[2], by = uy[0] - uy[2];
    float cx = ux[1] + ux[3], cy = uy[1] + uy[3], dx = uy[1] - uy[3], dy = ux[3] - ux[1];
    after[2 * j] = ax + cx;
    after[2 * j + 1] = ay + cy;
    after[2 * (j + p)] = bx + dx;
    after[2 * (j + p) + 1] = by + dy;
    after[2 * (j + 2 * p)] = ax - cx;
    after[2 * (j + 2 * p) + 1] = ay - cy;
    after[2 * (j + 3 * p)] = bx - dx;
    after[2 * (j + 3 * p) + 1] = by - dy;
    }
}
