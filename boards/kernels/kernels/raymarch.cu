__device__ float scene(float x, float y, float z) {
    float by = y - 0.2f, ball = sqrtf(x * x + by * by + z * z) - 0.7f;
    float qx = fabsf(x - 0.9f) - 0.35f, qy = fabsf(y + 0.1f) - 0.35f, qz = fabsf(z - 0.4f) - 0.35f;
    float mx = fmaxf(qx, 0), my = fmaxf(qy, 0), mz = fmaxf(qz, 0);
    float box = sqrtf(mx * mx + my * my + mz * mz) + fminf(fmaxf(qx, fmaxf(qy, qz)), 0);
    return fminf(fminf(ball, box), y + 0.5f);
}

extern "C" __global__ void kernel(float* __restrict__ image, int n) {
    int px = blockIdx.x * 16 + threadIdx.x, py = blockIdx.y * 16 + threadIdx.y;
    if (px >= n || py >= n) return;
    float u = 2.0f * px / n - 1.0f, v = 1.0f - 2.0f * py / n, s = rsqrtf(u * u + v * v + 2.25f), t = 0;
    float dx = u * s, dy = v * s, dz = 1.5f * s;
    for (int i = 0; i < 64; i++) {
        float d = scene(dx * t, 0.3f + dy * t, -3.0f + dz * t);
        if (d < 0.001f || t > 20.0f) break;
        t += d;
    }
    image[py * n + px] = expf(-0.2f * t);
}
