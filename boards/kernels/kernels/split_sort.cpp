extern "C" void run(void** buffers, long n) {
    const unsigned* input = (const unsigned*)buffers[0];
    unsigned* output = (unsigned*)buffers[1];
#pragma omp parallel for
    for (long block = 0; block < n / 256; block++) {
        unsigned keys[256], next[256];
        for (int i = 0; i < 256; i++) keys[i] = input[256 * block + i];
        for (int bit = 0; bit < 8; bit++) {
            int zeros = 0;
            for (int i = 0; i < 256; i++) zeros += 1 - (keys[i] >> bit & 1);
            int low = 0, high = zeros;
            for (int i = 0; i < 256; i++) next[keys[i] >> bit & 1 ? high++ : low++] = keys[i];
            for (int i = 0; i < 256; i++) keys[i] = next[i];
        }
        for (int i = 0; i < 256; i++) output[256 * block + i] = keys[i];
    }
}
