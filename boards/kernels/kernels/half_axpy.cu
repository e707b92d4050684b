struct Half { unsigned short bits; };

__device__ float widen(unsigned short h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

__device__ unsigned short narrow(float f) {
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

extern "C" __global__ void kernel(const ushort2* __restrict__ x, const ushort2* __restrict__ y, ushort2* __restrict__ z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ushort2 a = x[i], b = y[i];
    z[i] = make_ushort2(narrow(widen(a.x) * 1.5f + widen(b.x)), narrow(widen(a.y) * 1.5f + widen(b.y)));
}
