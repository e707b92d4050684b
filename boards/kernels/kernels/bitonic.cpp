#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const uint32_t* input = (const uint32_t*)b[0];
    uint32_t* output = (uint32_t*)b[1];
#pragma omp parallel for
    for (long start = 0; start < n; start += 512) {
        uint32_t* keys = output + start;
        for (int i = 0; i < 512; i++) keys[i] = input[start + i];
        for (int size = 2; size <= 512; size <<= 1)
            for (int stride = size >> 1; stride > 0; stride >>= 1)
                for (int block = 0; block < 512; block += 2 * stride)
                    for (int i = block; i < block + stride; i++) {
                        uint32_t x = keys[i], y = keys[i + stride];
                        uint32_t low = std::min(x, y), high = std::max(x, y);
                        bool up = (i & size) == 0;
                        keys[i] = up ? low : high;
                        keys[i + stride] = up ? high : low;
                    }
    }
}
