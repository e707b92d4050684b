#include <algorithm>

extern "C" void run(void** b, long n) {
    const float* weights = (const float*)b[0];
    const float* picture = (const float*)b[1];
    float* filtered = (float*)b[2];
    int side = n;
#pragma omp parallel for
    for (int row = 0; row < side; row++)
        for (int column = 0; column < side; column++) {
            float sum = 0;
            for (int y = 0; y < 5; y++)
                for (int x = 0; x < 5; x++)
                    sum += weights[y * 5 + x] *
                           picture[(long)std::min(std::max(row + y - 2, 0), side - 1) * side + std::min(std::max(column + x - 2, 0), side - 1)];
            filtered[(long)row * side + column] = sum;
        }
}
