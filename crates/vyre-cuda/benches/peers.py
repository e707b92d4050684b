"""2a+1 on 400 MB from and to the host, the map a*b+1 over 2^28 f32 in torch.compile, and products of matrices in cuBLAS: the peers
of `board`. `peers.py run` is the first only."""
import sys
import time

import torch

host = torch.arange(100_000_000, dtype=torch.float32)
times = []
for _ in range(9):
    begin = time.perf_counter()
    (host.cuda() * 2 + 1).cpu()
    times.append(time.perf_counter() - begin)
print(f"torch .cuda(), 2a+1, .cpu() of 400 MB {sorted(times)[4] * 1e3:10.2f} ms")
del host
if sys.argv[1:] == ["run"]:
    sys.exit()

n = 1 << 28
a, b = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
f = torch.compile(lambda a, b: a * b + 1)
for _ in range(3):
    f(a, b)


def median_ms(work):
    times = []
    for _ in range(21):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[10]


print(f"torch.compile map             {n * 12 / median_ms(lambda: f(a, b)) / 1e6:10.0f} GB/s")
del a, b
for size in (1024, 4096, 8192):
    for ty in (torch.float16, torch.bfloat16):
        x, y = (torch.rand(size, size, device="cuda").to(ty) - 0.5 for _ in range(2))
        for _ in range(3):
            x @ y.t()
        name = str(ty).removeprefix("torch.")
        print(f"cuBLAS {name:<9}{size:>5}         {2 * size**3 / median_ms(lambda: x @ y.t()) / 1e9:10.0f} TFLOP/s")
