#include <cmath>
#include <cstdint>
#include <algorithm>

struct Point { float x, y, z, w; };

extern "C" void run(void** b, long n) {
    const Point *points = (const Point*)b[0], *centres = (const Point*)b[1];
    uint32_t* nearest = (uint32_t*)b[2];
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        Point p = points[i];
        float best = 3.4e38f;
        uint32_t which = 0;
        for (uint32_t k = 0; k < 32; k++) {
            Point c = centres[k];
            float x = p.x - c.x, y = p.y - c.y, z = p.z - c.z, w = p.w - c.w;
            float distance = x * x + y * y + z * z + w * w;
            if (distance < best) {
                best = distance;
                which = k;
            }
        }
        nearest[i] = which;
    }
}
