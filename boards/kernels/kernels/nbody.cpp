#include <cmath>
#include <cstdint>
#include <algorithm>

struct Body { float x, y, z, w; };

extern "C" void run(void** b, long n) {
    const Body* bodies = (const Body*)b[0];
    Body* forces = (Body*)b[1];
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        float fx = 0, fy = 0, fz = 0;
        for (long j = 0; j < n; j++) {
            float dx = bodies[j].x - bodies[i].x, dy = bodies[j].y - bodies[i].y, dz = bodies[j].z - bodies[i].z;
            float r = 1.0f / sqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
            float s = bodies[j].w * r * r * r;
            fx += dx * s;
            fy += dy * s;
            fz += dz * s;
        }
        forces[i] = {fx, fy, fz, 0};
    }
}
