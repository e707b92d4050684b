#include <cmath>
#define FN static inline
FN void sift_down(float* heap, int start, int end) {
    int root = start;
    for (;;) {
        int child = 2 * root + 1;
        if (child >= end) break;
        if (child + 1 < end && heap[child] < heap[child + 1]) child++;
        if (heap[root] >= heap[child]) return;
        float held = heap[root];
        heap[root] = heap[child];
        heap[child] = held;
        root = child;
    }
}

FN void sort(float* numbers) {
    float heap[32];
    for (int i = 0; i < 32; i++) {
        float x = numbers[i] * 7.31f;
        heap[i] = x - floorf(x);
    }
    for (int start = 15; start >= 0; start--) sift_down(heap, start, 32);
    for (int end = 31; end > 0; end--) {
        float held = heap[end];
        heap[end] = heap[0];
        heap[0] = held;
        sift_down(heap, 0, end);
    }
    for (int i = 0; i < 32; i++) numbers[i] = heap[i];
}

extern "C" void run(void** b, long n) {
    float* numbers = (float*)b[0];
#pragma omp parallel for
    for (long id = 0; id < n; id++) sort(numbers + id * 32);
}
