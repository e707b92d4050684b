#include <algorithm>

extern "C" void run(void** b, long n) {
    const unsigned char *text = (const unsigned char*)b[0], *pattern = (const unsigned char*)b[1];
    unsigned* counts = (unsigned*)b[2];
#pragma omp parallel for
    for (long group = 0; group < n / 256; group++) {
        unsigned found = 0;
        for (long start = group * 1024; start < std::min(group * 1024 + 1024, n * 4 - 5); start++) {
            int i = 0;
            while (i < 6 && (text[start + i] & 3) == (pattern[i] & 3)) i++;
            found += i == 6;
        }
        counts[group] = found;
    }
}
