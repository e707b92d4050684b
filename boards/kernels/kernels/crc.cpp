#include <cstdint>

extern "C" void run(void** b, long n) {
    const uint32_t *data = (const uint32_t*)b[0], *table = (const uint32_t*)b[1];
    uint32_t* sums = (uint32_t*)b[2];
#pragma omp parallel for
    for (long block = 0; block < n; block++) {
        uint32_t crc = 0xffffffffu;
        for (int i = 0; i < 16; i++) {
            uint32_t word = data[block * 16 + i];
            for (int byte = 0; byte < 4; byte++) crc = (crc >> 8) ^ table[(crc ^ (word >> (8 * byte))) & 0xff];
        }
        sums[block] = ~crc;
    }
}
