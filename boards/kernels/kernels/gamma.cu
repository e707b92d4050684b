__device__ float encode(float x) { return x <= 0.0031308f ? 12.92f * x : 1.055f * powf(x, 0.41666667f) - 0.055f; }

extern "C" __global__ void kernel(const float4* __restrict__ input, float4* __restrict__ output, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 c = input[i];
    output[i] = make_float4(encode(c.x), encode(c.y), encode(c.z), c.w);
}
