extern "C" __global__ void kernel(const unsigned* __restrict__ starts, const unsigned* __restrict__ edges, const unsigned* __restrict__ level,
                                  unsigned* __restrict__ seen, unsigned* __restrict__ queue) {
    __shared__ unsigned local_items[2048], local_count, local_base;
    if (threadIdx.x == 0) local_count = 0;
    __syncthreads();
    unsigned node = blockIdx.x * 128 + threadIdx.x;
    if (level[node] == 0)
        for (unsigned e = starts[node]; e < starts[node + 1]; e++) {
            unsigned other = edges[e], bit = 1u << (other & 31);
            if ((atomicOr(&seen[other >> 5], bit) & bit) == 0) local_items[atomicAdd(&local_count, 1u)] = other;
        }
    __syncthreads();
    if (threadIdx.x == 0) local_base = atomicAdd(&queue[0], local_count);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < local_count; i += 128) queue[1 + local_base + i] = local_items[i];
}
