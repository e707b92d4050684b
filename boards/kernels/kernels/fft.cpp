#include <cmath>
#include <cstdint>
#include <algorithm>

struct Complex { float x, y; };

extern "C" void run(void** b, long n) {
    const Complex* input = (const Complex*)b[0];
    Complex* output = (Complex*)b[1];
#pragma omp parallel for
    for (long start = 0; start < n; start += 1024) {
        Complex* data = output + start;
        for (int i = 0; i < 1024; i++) {
            int r = 0;
            for (int bit = 0; bit < 10; bit++) r |= (i >> bit & 1) << (9 - bit);
            data[r] = input[start + i];
        }
        for (int half = 1; half < 1024; half <<= 1) {
            float c[512], s[512];
            for (int k = 0; k < half; k++) {
                float angle = -3.14159265f * k / half;
                c[k] = cosf(angle);
                s[k] = sinf(angle);
            }
            for (int block = 0; block < 1024; block += 2 * half)
                for (int k = 0; k < half; k++) {
                    Complex a = data[block + k], d = data[block + k + half];
                    Complex m = {c[k] * d.x - s[k] * d.y, c[k] * d.y + s[k] * d.x};
                    data[block + k] = {a.x + m.x, a.y + m.y};
                    data[block + k + half] = {a.x - m.x, a.y - m.y};
                }
        }
    }
}
