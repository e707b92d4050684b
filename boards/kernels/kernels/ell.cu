extern "C" __global__ void kernel(const int* __restrict__ columns, const float* __restrict__ entries, const float* __restrict__ x,
                                  float* __restrict__ y, int rows) {
    int row = blockIdx.x * 128 + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int k = 0; k < 24; k++) {
        int column = columns[k * rows + row];
        if (column >= 0) sum += entries[k * rows + row] * x[column];
    }
    y[row] = sum;
}
