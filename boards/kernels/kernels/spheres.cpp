#include <cmath>

struct float4 {
    float x, y, z, w;
};
struct Vec {
    float x, y, z;
};
static inline Vec minus(Vec a, Vec b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
static inline Vec plus(Vec a, Vec b, float k) { return {a.x + b.x * k, a.y + b.y * k, a.z + b.z * k}; }
static inline float dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static inline Vec unit(Vec a) {
    float k = 1.0f / sqrtf(dot(a, a));
    return {a.x * k, a.y * k, a.z * k};
}
static inline Vec centre(float4 s) { return {s.x * 4.0f - 2.0f, s.y * 4.0f - 2.0f, s.z * 4.0f + 2.0f}; }

static inline bool meet(const float4* spheres, Vec origin, Vec way, float* nearest, int* which) {
    for (int i = 0; i < 16; i++) {
        float4 sphere = spheres[i];
        Vec to = minus(centre(sphere), origin);
        float radius = 0.2f + 0.4f * sphere.w, along = dot(to, way);
        float under = along * along - dot(to, to) + radius * radius;
        if (under > 0) {
            float distance = along - sqrtf(under);
            if (distance > 0.001f && distance < *nearest) {
                *nearest = distance;
                *which = i;
            }
        }
    }
    return *which >= 0;
}

extern "C" void run(void** b, long n) {
    const float4* spheres = (const float4*)b[0];
    float* image = (float*)b[1];
#pragma omp parallel for schedule(dynamic, 4)
    for (long y = 0; y < n; y++)
        for (long x = 0; x < n; x++) {
            Vec way = unit({(x + 0.5f) / n * 2.0f - 1.0f, (y + 0.5f) / n * 2.0f - 1.0f, 1.0f}), light = unit({0.5f, -1.0f, -0.6f});
            float brightness = 0.1f, nearest = 1e30f;
            int which = -1;
            if (meet(spheres, {0, 0, 0}, way, &nearest, &which)) {
                Vec point = {way.x * nearest, way.y * nearest, way.z * nearest};
                Vec normal = unit(minus(point, centre(spheres[which])));
                float facing = dot(normal, light), far = 1e30f;
                int other = -1;
                if (facing > 0 && !meet(spheres, plus(point, normal, 0.01f), light, &far, &other)) brightness += 0.9f * facing;
            }
            image[y * n + x] = brightness;
        }
}
