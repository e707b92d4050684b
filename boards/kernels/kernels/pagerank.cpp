struct Page {
    float rank;
    float links;
};

extern "C" void run(void** b, long n) {
    const unsigned *starts = (const unsigned*)b[0], *sources = (const unsigned*)b[1];
    const Page* pages = (const Page*)b[2];
    float* ranks = (float*)b[3];
#pragma omp parallel for
    for (long page = 0; page < n; page++) {
        float sum = 0;
        for (unsigned edge = starts[page]; edge < starts[page + 1]; edge++) {
            const Page& source = pages[sources[edge]];
            sum += source.rank / (source.links + 1.0f);
        }
        ranks[page] = 0.15f + 0.85f * sum;
    }
}
