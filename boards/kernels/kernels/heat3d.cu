extern "C" __global__ void kernel(const float* __restrict__ input, float* __restrict__ output, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y, z = blockIdx.z * 2 + threadIdx.z;
    if (x >= n || y >= n || z >= n) return;
    int at = (z * n + y) * n + x;
    float now = input[at];
    if (x == 0 || y == 0 || z == 0 || x == n - 1 || y == n - 1 || z == n - 1) {
        output[at] = now;
        return;
    }
    float around = input[at - 1] + input[at + 1] + input[at - n] + input[at + n] + input[at - n * n] + input[at + n * n];
    output[at] = now + 0.1f * (around - 6.0f * now);
}
