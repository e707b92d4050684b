extern "C" void run(void** buffers, long n) {
    const float *a = (const float*)buffers[0], *b = (const float*)buffers[1];
    float* c = (float*)buffers[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        const float *left = a + 256 * at, *right = b + 256 * at;
        float* out = c + 256 * at;
        for (int y = 0; y < 16; y++) {
            float sum[16] = {};
            for (int k = 0; k < 16; k++)
                for (int x = 0; x < 16; x++) sum[x] += left[16 * y + k] * right[16 * k + x];
            for (int x = 0; x < 16; x++) out[16 * y + x] = sum[x];
        }
    }
}
