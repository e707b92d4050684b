"""The map a*b+1 over 2^28 f32 in torch.compile: the peer of `board`'s map."""
import torch

n = 1 << 28
a, b = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
f = torch.compile(lambda a, b: a * b + 1)
for _ in range(3):
    f(a, b)
times = []
for _ in range(21):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    f(a, b)
    end.record()
    end.synchronize()
    times.append(start.elapsed_time(end))
print(f"torch.compile map             {n * 12 / sorted(times)[10] / 1e6:10.0f} GB/s")
