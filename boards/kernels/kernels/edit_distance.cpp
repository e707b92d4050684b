#include <algorithm>

extern "C" void run(void** b, long n) {
    const unsigned *left = (const unsigned*)b[0], *right = (const unsigned*)b[1];
    unsigned* distances = (unsigned*)b[2];
#pragma omp parallel for
    for (long pair = 0; pair < n; pair++) {
        unsigned row[33], others[32];
        for (int i = 0; i < 33; i++) row[i] = i;
        for (int i = 0; i < 32; i++) others[i] = right[pair * 8 + i / 4] >> 8 * (i % 4) & 3;
        for (int y = 0; y < 32; y++) {
            unsigned letter = left[pair * 8 + y / 4] >> 8 * (y % 4) & 3, diagonal = row[0];
            row[0] = y + 1;
            for (int x = 0; x < 32; x++) {
                unsigned above = row[x + 1];
                row[x + 1] = std::min(std::min(above, row[x]) + 1, diagonal + (letter == others[x] ? 0 : 1));
                diagonal = above;
            }
        }
        distances[pair] = row[32];
    }
}
