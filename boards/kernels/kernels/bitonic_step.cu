struct Step {
    unsigned block, distance, unused[2];
};

extern "C" __global__ void kernel(const Step* __restrict__ step, unsigned* __restrict__ keys, unsigned n) {
    unsigned i = blockIdx.x * 256 + threadIdx.x, partner = i ^ step->distance;
    if (partner > i && partner < n) {
        unsigned a = keys[i], b = keys[partner];
        bool rising = (i & step->block) == 0;
        if ((rising && a > b) || (!rising && a < b)) {
            keys[i] = b;
            keys[partner] = a;
        }
    }
}
