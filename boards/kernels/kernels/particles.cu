struct alignas(16) Particle {
    float position[3], mass, velocity[3], age;
};

extern "C" __global__ void kernel(const Particle* __restrict__ before, Particle* __restrict__ after, int n) {
    int at = blockIdx.x * 64 + threadIdx.x;
    if (at >= n) return;
    Particle p = before[at];
    float drag = 0.1f * 0.01f / (0.5f + p.mass);
    for (int axis = 0; axis < 3; axis++) {
        p.velocity[axis] += (axis == 1 ? -9.81f * 0.01f : 0.0f) - p.velocity[axis] * drag;
        p.position[axis] += p.velocity[axis] * 0.01f;
        if (p.position[axis] < 0) {
            p.position[axis] = -p.position[axis];
            p.velocity[axis] *= -0.8f;
        } else if (p.position[axis] > 1) {
            p.position[axis] = 2.0f - p.position[axis];
            p.velocity[axis] *= -0.8f;
        }
    }
    p.age += 0.01f;
    after[at] = p;
}
