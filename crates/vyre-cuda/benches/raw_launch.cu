// The driver API without anything around it: what a tiny dispatch costs at least. nvcc -o raw_launch raw_launch.cu -lcuda
#include <cuda.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <vector>

static void check(CUresult code, const char *what) {
    if (code != CUDA_SUCCESS) { std::printf("%s: %d\n", what, (int)code); std::exit(1); }
}
#define CHECK(call) check(call, #call)

// As many parameters as a program with one buffer has.
static const char *PTX = ".version 7.8\n.target sm_70\n.address_size 64\n"
    ".visible .entry k(.param .u64 p, .param .u64 n, .param .u32 c, .param .u32 gx, .param .u32 gy, .param .u32 gz,\n"
    ".param .u32 bx, .param .u32 by, .param .u32 bz, .param .u64 l, .param .u64 s) {\n"
    ".reg .b64 %a; .reg .b32 %r, %t; .reg .pred %q;\n"
    "ld.param.u64 %a, [p]; cvta.to.global.u64 %a, %a; mov.u32 %t, %tid.x; ld.param.u32 %r, [c]; setp.ge.u32 %q, %t, %r;\n"
    "@%q ret; mad.wide.u32 %a, %t, 4, %a; ld.global.u32 %r, [%a]; add.u32 %r, %r, 1; st.global.u32 [%a], %r; ret; }\n";

static double now() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2]; }

int main() {
    const int N = 1000;
    CUdevice device; CUcontext context; CUmodule module; CUfunction function; CUstream stream; CUdeviceptr memory;
    double begin = now();
    CHECK(cuInit(0)); CHECK(cuDeviceGet(&device, 0)); CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    std::printf("raw cuInit and context        %10.1f ms\n", (now() - begin) / 1e3);
    CHECK(cuModuleLoadData(&module, PTX)); CHECK(cuModuleGetFunction(&function, module, "k"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); CHECK(cuMemAlloc(&memory, 256));
    unsigned long long length = 64, launch = 1, stop = memory; unsigned int count = 64, one = 1, zero = 0;
    void *params[] = {&memory, &length, &count, &one, &one, &one, &zero, &zero, &zero, &launch, &stop};
    auto go = [&] { CHECK(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, params, nullptr)); };
    CUgraph graph; CUgraphExec ready;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < N; i++) go();
    CHECK(cuStreamEndCapture(stream, &graph)); CHECK(cuGraphInstantiate(&ready, graph, 0));
    std::vector<double> pipelined, waited, recorded;
    for (int round = 0; round < 21; round++) {
        double t = now();
        for (int i = 0; i < N; i++) go();
        CHECK(cuStreamSynchronize(stream));
        pipelined.push_back((now() - t) / N); t = now();
        for (int i = 0; i < N; i++) { go(); CHECK(cuStreamSynchronize(stream)); }
        waited.push_back((now() - t) / N); t = now();
        CHECK(cuGraphLaunch(ready, stream)); CHECK(cuStreamSynchronize(stream));
        recorded.push_back((now() - t) / N);
    }
    std::printf("raw launch, pipelined         %10.2f us\n", median(pipelined));
    std::printf("raw launch, launch + wait     %10.2f us\n", median(waited));
    std::printf("raw launch, recorded          %10.2f us\n", median(recorded));
}
