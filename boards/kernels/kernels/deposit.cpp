#include <cmath>
#include <cstdint>

struct Particle { float x, y, vx, vy; };

extern "C" void run(void** b, long n) {
    const Particle* particles = (const Particle*)b[0];
    int* charge = (int*)b[1];
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        float x = particles[i].x * 254.0f, y = particles[i].y * 254.0f;
        uint32_t cx = (uint32_t)floorf(x), cy = (uint32_t)floorf(y);
        float fx = x - floorf(x), fy = y - floorf(y);
        uint32_t at = cy * 256 + cx;
        int a = (int)((1.0f - fx) * (1.0f - fy) * 1024.0f), c = (int)(fx * (1.0f - fy) * 1024.0f);
        int d = (int)((1.0f - fx) * fy * 1024.0f), e = (int)(fx * fy * 1024.0f);
#pragma omp atomic
        charge[at] += a;
#pragma omp atomic
        charge[at + 1] += c;
#pragma omp atomic
        charge[at + 256] += d;
#pragma omp atomic
        charge[at + 257] += e;
    }
}
