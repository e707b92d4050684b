extern "C" __global__ void kernel(const float2* __restrict__ points, const unsigned* __restrict__ cluster, int* __restrict__ sums, int n) {
    __shared__ int local_sums[48];
    if (threadIdx.x < 48) local_sums[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        int k = cluster[i] * 3;
        float2 point = points[i];
        atomicAdd(&local_sums[k], (int)(point.x * 256));
        atomicAdd(&local_sums[k + 1], (int)(point.y * 256));
        atomicAdd(&local_sums[k + 2], 1);
    }
    __syncthreads();
    if (threadIdx.x < 48) atomicAdd(&sums[threadIdx.x], local_sums[threadIdx.x]);
}
