extern "C" __global__ void kernel(const unsigned* __restrict__ data, const unsigned* __restrict__ table, unsigned* __restrict__ sums, int n) {
    int block = blockIdx.x * 64 + threadIdx.x;
    if (block >= n) return;
    unsigned crc = 0xffffffffu;
    for (int i = 0; i < 16; i++) {
        unsigned word = data[block * 16 + i];
        for (int byte = 0; byte < 4; byte++) crc = (crc >> 8) ^ table[(crc ^ (word >> (8 * byte))) & 0xff];
    }
    sums[block] = ~crc;
}
