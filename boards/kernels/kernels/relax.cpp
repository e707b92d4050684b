#include <atomic>

extern "C" void run(void** b, long n) {
    const unsigned *edges = (const unsigned*)b[0], *lengths = (const unsigned*)b[1];
    std::atomic<unsigned>* longest = (std::atomic<unsigned>*)b[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++) {
        unsigned from = edges[2 * at], to = edges[2 * at + 1], length = lengths[from] + (from & 15);
        unsigned known = longest[to].load(std::memory_order_relaxed);
        while (known < length && !longest[to].compare_exchange_weak(known, length, std::memory_order_relaxed)) {
        }
    }
}
