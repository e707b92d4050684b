__device__ inline unsigned hash(int x, int y) {
    unsigned h = (unsigned)x * 0x27d4eb2du ^ (unsigned)y * 0x165667b1u;
    h = (h ^ (h >> 15)) * 0x85ebca6bu;
    return h ^ (h >> 13);
}

__device__ inline float gradient(int x, int y, float dx, float dy) {
    unsigned h = hash(x, y) & 7;
    float u = h < 4 ? dx : dy, v = h < 4 ? dy : dx;
    return (h & 1 ? -u : u) + 2.0f * (h & 2 ? -v : v);
}

__device__ inline float mixed(float a, float b, float t) { return a * (1.0f - t) + b * t; }

__device__ inline float noise(float x, float y) {
    int cx = (int)floorf(x), cy = (int)floorf(y);
    float dx = x - floorf(x), dy = y - floorf(y);
    float sx = dx * dx * dx * (dx * (dx * 6.0f - 15.0f) + 10.0f), sy = dy * dy * dy * (dy * (dy * 6.0f - 15.0f) + 10.0f);
    float low = mixed(gradient(cx, cy, dx, dy), gradient(cx + 1, cy, dx - 1, dy), sx);
    float high = mixed(gradient(cx, cy + 1, dx, dy - 1), gradient(cx + 1, cy + 1, dx - 1, dy - 1), sx);
    return mixed(low, high, sy);
}

extern "C" __global__ void kernel(float* __restrict__ image, int n) {
    int ix = blockIdx.x * 16 + threadIdx.x, iy = blockIdx.y * 16 + threadIdx.y;
    if (ix >= n || iy >= n) return;
    float x = ix / 64.0f, y = iy / 64.0f, sum = 0, part = 0.5f;
    for (int octave = 0; octave < 5; octave++) {
        sum += part * noise(x, y);
        x *= 2.03f;
        y *= 2.03f;
        part *= 0.5f;
    }
    image[iy * n + ix] = 0.5f + 0.5f * sum;
}
