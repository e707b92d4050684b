struct Item {
    float value;
    unsigned flag;
};

extern "C" __global__ void kernel(const float* __restrict__ values, const unsigned* __restrict__ flags, float* __restrict__ sums) {
    __shared__ Item temp[2][256];
    int tid = threadIdx.x, i = blockIdx.x * 256 + tid, src = 0;
    temp[0][tid] = Item{values[i], flags[i] == 0};
    __syncthreads();
    for (int offset = 1; offset < 256; offset <<= 1) {
        int dst = 1 - src;
        Item item = temp[src][tid];
        if (tid >= offset) {
            Item left = temp[src][tid - offset];
            if (item.flag == 0) item.value += left.value;
            item.flag |= left.flag;
        }
        temp[dst][tid] = item;
        src = dst;
        __syncthreads();
    }
    sums[i] = temp[src][tid].value;
}
