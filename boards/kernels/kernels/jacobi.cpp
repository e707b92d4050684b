#include <cstring>

extern "C" void run(void** b, long n) {
    const float *input = (const float*)b[0], *source = (const float*)b[1];
    float* output = (float*)b[2];
#pragma omp parallel for collapse(2)
    for (long gy = 0; gy < n; gy += 8)
        for (long gx = 0; gx < n; gx += 32) {
            float tile[10][34], next[8][32];
            for (long y = 0; y < 10; y++)
                for (long x = 0; x < 34; x++) {
                    long fy = gy + y - 1, fx = gx + x - 1;
                    bool inside = fy >= 0 && fx >= 0 && fy < n && fx < n && !((y == 0 || y == 9) && (x == 0 || x == 33));
                    tile[y][x] = inside ? input[fy * n + fx] : 0.0f;
                }
            for (int round = 0; round < 4; round++) {
                for (long y = 1; y < 9; y++)
                    for (long x = 1; x < 33; x++)
                        next[y - 1][x - 1] = 0.25f * (tile[y][x - 1] + tile[y][x + 1] + tile[y - 1][x] + tile[y + 1][x] -
                                                      source[(gy + y - 1) * n + gx + x - 1]);
                for (long y = 0; y < 8; y++) memcpy(&tile[y + 1][1], next[y], sizeof next[y]);
            }
            for (long y = 0; y < 8; y++) memcpy(&output[(gy + y) * n + gx], &tile[y + 1][1], sizeof next[y]);
        }
}
