#include <atomic>
#include <cstring>

extern "C" void run(void** b, long n) {
    const unsigned* places = (const unsigned*)b[0];
    const float* values = (const float*)b[1];
    std::atomic<unsigned>* sums = (std::atomic<unsigned>*)b[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        std::atomic<unsigned>& sum = sums[places[at]];
        unsigned old = sum.load(std::memory_order_relaxed), next;
        do {
            float x;
            memcpy(&x, &old, 4);
            x += values[at];
            memcpy(&next, &x, 4);
        } while (!sum.compare_exchange_weak(old, next, std::memory_order_relaxed));
    }
}
