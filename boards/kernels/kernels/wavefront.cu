extern "C" __global__ void kernel(const unsigned* __restrict__ queries, const unsigned* __restrict__ targets, int* __restrict__ scores) {
    __shared__ int before[65], last[65], next[65], best;
    unsigned i = threadIdx.x, group = blockIdx.x;
    unsigned letter = queries[group * 64 + i];
    before[i + 1] = 0;
    last[i + 1] = 0;
    if (i == 0) before[0] = last[0] = next[0] = best = 0;
    __syncthreads();
    for (unsigned diagonal = 0; diagonal < 127; diagonal++) {
        int score = 0;
        if (diagonal >= i && diagonal - i < 64) {
            bool same = letter == targets[group * 64 + diagonal - i];
            int matched = before[i] + (same ? 2 : -1);
            score = max(0, max(matched, max(last[i], last[i + 1]) - 1));
            if (score > 0) atomicMax(&best, score);
        }
        next[i + 1] = score;
        __syncthreads();
        before[i + 1] = last[i + 1];
        last[i + 1] = next[i + 1];
        __syncthreads();
    }
    if (i == 0) scores[group] = best;
}
