extern "C" void run(void** b, long n) {
    const float* input = (const float*)b[0];
    float* output = (float*)b[1];
#pragma omp parallel for collapse(2)
    for (long by = 0; by < n; by += 32)
        for (long bx = 0; bx < n; bx += 32)
            for (long y = by; y < by + 32; y++)
                for (long x = bx; x < bx + 32; x++) output[x * n + y] = input[y * n + x];
}
