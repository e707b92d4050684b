extern "C" void run(void** b, long rows) {
    const int* columns = (const int*)b[0];
    const float *entries = (const float*)b[1], *x = (const float*)b[2];
    float* y = (float*)b[3];
#pragma omp parallel for
    for (long row = 0; row < rows; row++) {
        float sum = 0;
        for (long k = 0; k < 24; k++) {
            int column = columns[k * rows + row];
            if (column >= 0) sum += entries[k * rows + row] * x[column];
        }
        y[row] = sum;
    }
}
