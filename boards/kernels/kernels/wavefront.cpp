#include <algorithm>

extern "C" void run(void** b, long n) {
    const unsigned *queries = (const unsigned*)b[0], *targets = (const unsigned*)b[1];
    int* scores = (int*)b[2];
#pragma omp parallel for
    for (long pair = 0; pair < n; pair++) {
        int row[65] = {}, best = 0;
        for (int t = 0; t < 64; t++) {
            int diagonal = 0;
            unsigned letter = targets[pair * 64 + t];
            for (int i = 0; i < 64; i++) {
                int above = row[i + 1];
                int score = std::max(0, std::max(diagonal + (queries[pair * 64 + i] == letter ? 2 : -1), std::max(above, row[i]) - 1));
                diagonal = above;
                row[i + 1] = score;
                best = std::max(best, score);
            }
        }
        scores[pair] = best;
    }
}
