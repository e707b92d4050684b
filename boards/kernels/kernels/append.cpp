#include <atomic>

extern "C" void run(void** b, long n) {
    const unsigned* input = (const unsigned*)b[0];
    std::atomic<unsigned>* count = (std::atomic<unsigned>*)b[1];
    unsigned* list = (unsigned*)b[2];
#pragma omp parallel for
    for (long at = 0; at < n; at++)
        if (input[at] > 0xc0000000u) {
            unsigned place = count->fetch_add(1, std::memory_order_relaxed);
            list[place % (unsigned)n] = 7;
        }
}
