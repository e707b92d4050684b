extern "C" __global__ void kernel(const unsigned* __restrict__ left, const unsigned* __restrict__ right, unsigned* __restrict__ distances, int n) {
    int pair = blockIdx.x * 128 + threadIdx.x;
    if (pair >= n) return;
    unsigned row[33], letters[8];
    for (int i = 0; i < 33; i++) row[i] = i;
    for (int i = 0; i < 8; i++) letters[i] = right[pair * 8 + i];
    for (int y = 0; y < 32; y++) {
        unsigned letter = left[pair * 8 + y / 4] >> 8 * (y % 4) & 3, diagonal = row[0];
        row[0] = y + 1;
        for (int x = 0; x < 32; x++) {
            unsigned other = letters[x / 4] >> 8 * (x % 4) & 3, above = row[x + 1];
            row[x + 1] = min(min(above, row[x]) + 1, diagonal + (letter == other ? 0 : 1));
            diagonal = above;
        }
    }
    distances[pair] = row[32];
}
