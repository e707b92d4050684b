#include <algorithm>
#include <cmath>

struct Point {
    float x, y, z;
};

extern "C" void run(void** b, long n) {
    const Point* corners = (const Point*)b[0];
    Point* __restrict__ normals = (Point*)b[1];
    float* __restrict__ areas = (float*)b[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        Point a = corners[at], p = corners[at + 1], q = corners[at + 2];
        float ux = p.x - a.x, uy = p.y - a.y, uz = p.z - a.z, vx = q.x - a.x, vy = q.y - a.y, vz = q.z - a.z;
        float x = uy * vz - uz * vy, y = uz * vx - ux * vz, z = ux * vy - uy * vx;
        float size = std::sqrt(x * x + y * y + z * z);
        areas[at] = 0.5f * size;
        float by = std::max(size, 1e-20f);
        normals[at] = {x / by, y / by, z / by};
    }
}
