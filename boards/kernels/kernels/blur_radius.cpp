#include <cmath>

struct Params {
    int width, height, radius, unused;
};

static inline unsigned packed(float x) { return (unsigned)std::floor(0.5f + 255.0f * std::fmin(std::fmax(x, 0.0f), 1.0f)); }

extern "C" void run(void** b, long) {
    const Params params = *(const Params*)b[0];
    const unsigned* source = (const unsigned*)b[1];
    unsigned* blurred = (unsigned*)b[2];
    int width = params.width, height = params.height, r = params.radius;
#pragma omp parallel for
    for (int row = 0; row < height; row++)
        for (int column = 0; column < width; column++) {
            float sum[4] = {0, 0, 0, 0}, count = 0;
            for (int dy = -r; dy <= r; dy++)
                for (int dx = -r; dx <= r; dx++) {
                    int x = column + dx, y = row + dy;
                    if (x >= 0 && y >= 0 && x < width && y < height) {
                        unsigned word = source[y * width + x];
                        for (int i = 0; i < 4; i++) sum[i] += (word >> (8 * i) & 255) / 255.0f;
                        count += 1;
                    }
                }
            unsigned word = 0;
            for (int i = 0; i < 4; i++) word |= packed(sum[i] / count) << (8 * i);
            blurred[row * width + column] = word;
        }
}
