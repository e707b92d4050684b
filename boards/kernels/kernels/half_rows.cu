#include <cuda_fp16.h>

struct __align__(8) Four {
    __half2 low, high;
};

extern "C" __global__ void kernel(const Four* __restrict__ matrix, const Four* __restrict__ vector, float* __restrict__ products) {
    __shared__ float parts[64];
    float sum = 0;
    for (int i = threadIdx.x; i < 256; i += 64) {
        Four a = matrix[(long)blockIdx.x * 256 + i], b = vector[i];
        float2 al = __half22float2(a.low), ah = __half22float2(a.high), bl = __half22float2(b.low), bh = __half22float2(b.high);
        sum += al.x * bl.x + al.y * bl.y + ah.x * bh.x + ah.y * bh.y;
    }
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 32; step > 0; step /= 2) {
        if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) products[blockIdx.x] = parts[0];
}
