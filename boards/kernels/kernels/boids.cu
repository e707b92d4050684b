struct Particle {
    float2 pos, vel;
};
struct Params {
    float deltaT, rule1Distance, rule2Distance, rule3Distance;
};

__device__ float distance(float2 a, float2 b) {
    float x = a.x - b.x, y = a.y - b.y;
    return sqrtf(x * x + y * y);
}

extern "C" __global__ void kernel(const Params* __restrict__ params, const Particle* __restrict__ before, Particle* __restrict__ after, int n) {
    int index = blockIdx.x * 64 + threadIdx.x;
    if (index >= n) return;
    float2 p = before[index].pos, v = before[index].vel;
    float2 mass = {0, 0}, together = {0, 0}, apart = {0, 0};
    int masses = 0, velocities = 0;
    for (int i = 0; i < n; i++) {
        if (i == index) continue;
        float2 pos = before[i].pos, vel = before[i].vel;
        if (distance(pos, p) < params->rule1Distance) {
            mass.x += pos.x, mass.y += pos.y;
            masses++;
        }
        if (distance(pos, p) < params->rule2Distance) apart.x -= pos.x - p.x, apart.y -= pos.y - p.y;
        if (distance(pos, p) < params->rule3Distance) {
            together.x += vel.x, together.y += vel.y;
            velocities++;
        }
    }
    if (masses > 0) mass.x = mass.x / masses - p.x, mass.y = mass.y / masses - p.y;
    if (velocities > 0) together.x /= velocities, together.y /= velocities;
    v.x += mass.x * 0.02f + apart.x * 0.05f + together.x * 0.005f;
    v.y += mass.y * 0.02f + apart.y * 0.05f + together.y * 0.005f;
    float length = sqrtf(v.x * v.x + v.y * v.y), scale = fminf(fmaxf(length, 0.0f), 0.1f) / length;
    v.x *= scale, v.y *= scale;
    p.x += v.x * params->deltaT, p.y += v.y * params->deltaT;
    if (p.x < -1) p.x = 1;
    if (p.x > 1) p.x = -1;
    if (p.y < -1) p.y = 1;
    if (p.y > 1) p.y = -1;
    after[index].pos = p;
    after[index].vel = v;
}
