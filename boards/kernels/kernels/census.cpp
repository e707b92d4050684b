extern "C" void run(void** b, long n) {
    const unsigned char* image = (const unsigned char*)b[0];
    unsigned* __restrict__ codes = (unsigned*)b[1];
#pragma omp parallel for
    for (long y = 2; y < n - 2; y++)
        for (long x = 3; x < n - 3; x++) {
            unsigned middle = image[y * n + x], code = 0;
            for (int dy = -2; dy <= 2; dy++)
                for (int dx = -3; dx <= 3; dx++) {
                    if (dx == 0 && dy == 0) continue;
                    code = code << 1 | (image[(y + dy) * n + x + dx] < middle);
                }
            codes[y * n + x] = code;
        }
}
