#include <cmath>
#include <cstdint>
#include <algorithm>

extern "C" void run(void** b, long n) {
    const uint32_t *queries = (const uint32_t*)b[0], *targets = (const uint32_t*)b[1];
    int* scores = (int*)b[2];
#pragma omp parallel for
    for (long id = 0; id < n; id++) {
        int row[33] = {};
        uint32_t query[32];
        for (int i = 0; i < 32; i++) query[i] = (queries[id * 2 + i / 16] >> (2 * (i % 16))) & 3;
        int best = 0;
        for (int t = 0; t < 64; t++) {
            uint32_t letter = (targets[id * 4 + t / 16] >> (2 * (t % 16))) & 3;
            int diagonal = 0;
            for (int i = 0; i < 32; i++) {
                int above = row[i + 1];
                int matched = diagonal + (query[i] == letter ? 5 : -3);
                int score = std::max(std::max(matched, 0), std::max(above, row[i]) - 4);
                diagonal = above;
                row[i + 1] = score;
                best = std::max(best, score);
            }
        }
        scores[id] = best;
    }
}
