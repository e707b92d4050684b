#include <utility>

struct Step {
    unsigned block, distance, unused[2];
};

extern "C" void run(void** b, long n) {
    const Step step = *(const Step*)b[0];
    unsigned* keys = (unsigned*)b[1];
#pragma omp parallel for
    for (unsigned i = 0; i < n; i++) {
        unsigned partner = i ^ step.distance;
        if (partner > i && partner < n) {
            bool rising = (i & step.block) == 0;
            if (rising ? keys[i] > keys[partner] : keys[i] < keys[partner]) std::swap(keys[i], keys[partner]);
        }
    }
}
