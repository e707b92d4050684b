"""What PyTorch (eager and compiled) and CuPy take for the works of the board's `--on cuda --large`, on the GPU that they find.

    python3 boards/ops/peers.py [--small] [--elements POWER] [--against op-board.json] [work ...]
    python3 boards/ops/peers.py --little

Prints a line of JSON for each work and peer: the median of 11 batches in milliseconds a run. Run it in the same call as the board, whose report
makes it print a table of both. With `--little` it times what the board's `--little` does, by the clock.
"""

import json
import statistics
import sys

import torch

try:
    import cupy
except ImportError:
    cupy = None

if "--little" in sys.argv:
    import time

    def little(name, run):
        def median(one_at_a_time):
            times = []
            for _ in range(16):
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(256):
                    run()
                    if one_at_a_time:
                        torch.cuda.synchronize()
                torch.cuda.synchronize()
                times.append((time.perf_counter() - began) * 1e6 / 256)
            return statistics.median(times[1:])

        print(f"| {name} | {median(False):.2f} | {median(True):.2f} |", flush=True)

    print("| op | in batches, µs | one at a time, µs |\n|---|---|---|")
    of = lambda *shape: torch.rand(*shape, device="cuda")
    x16, x64k, rows, table, line, matrix = of(16), of(1 << 16), of(32, 128), of(1, 1, 64, 64), of(4096), of(64, 64)
    weights = torch.tensor([[0, 0.25, 0], [0.25, 0.5, 0.25], [0, 0.25, 0]], device="cuda")[None, None]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    little("map a*a+1 of 16", lambda: x16 * x16 + 1)
    little("map a*a+1 of 65536", lambda: x64k * x64k + 1)
    one = torch.ones((), device="cuda")
    little("map a*a+1 of 16 (addcmul, one kernel)", lambda: torch.addcmul(one, x16, x16))
    little("sum of 16", lambda: x16.sum())
    little("sum of 65536", lambda: x64k.sum())
    little("softmax of 32 x 128", lambda: torch.softmax(rows, 1))
    little("stencil of 64 x 64", lambda: torch.nn.functional.conv2d(table, weights, padding=1))
    little("cumsum of 4096", lambda: line.cumsum(0))
    little("matmul 64", lambda: matrix @ matrix)
    sys.exit()

small = "--small" in sys.argv
power = int(sys.argv[sys.argv.index("--elements") + 1]) if "--elements" in sys.argv else None
against = sys.argv[sys.argv.index("--against") + 1] if "--against" in sys.argv else None
only = [arg for arg in sys.argv[1:] if not arg.startswith("--") and arg not in (against, str(power))]
measured = {}
n, keys, side, matrix = (1 << 24, 1 << 22, 2048, 512) if small else (1 << 28, 1 << 26, 8192, 4096)
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = False
device = "cuda"

a = torch.rand(n, device=device) * 2 - 1
b = torch.rand(n, device=device) * 2 - 1
# Works of one long array are of so many elements.
x, y = (a[: 1 << power], b[: 1 << power]) if power else (a, b)
codes = torch.randint(0, 256, (n,), device=device, dtype=torch.int32)
equal = torch.full((n,), 7, device=device, dtype=torch.int32)
words = torch.randint(0, 1 << 31, (keys,), device=device, dtype=torch.int32)
places = torch.randint(0, n, (keys,), device=device)
table = a[: side * side].reshape(side, side)
left = a[: matrix * matrix].reshape(matrix, matrix)
right = b[: matrix * matrix].reshape(matrix, matrix)
left_half, right_half = left.half(), right.half()
bias = b[:matrix]
half_bias = bias.half()
halves = a[:keys].half()
heads, steps, dim = (8, 512, 64) if small else (32, 4096, 128)
q, k, v = (t[: heads * steps * dim].reshape(1, heads, steps, dim) for t in (a, b, a[16:]))
q_half, k_half, v_half = q.half(), k.half(), v.half()
attention = torch.nn.functional.scaled_dot_product_attention
gelu = torch.nn.functional.gelu
short, long = (256, 1 << 14) if small else (1024, 1 << 20)
waves = torch.view_as_complex(a[: n // 2].reshape(-1, 2))
bodies = a[: 4 * (1 << 12 if small else 1 << 15)].reshape(-1, 4)
images, channels = (2, 16) if small else (32, 64)
pictures = a[: images * channels * 56 * 56].reshape(images, channels, 56, 56)
windows = b[: channels * channels * 9].reshape(channels, channels, 3, 3)
torch.backends.cudnn.allow_tf32 = False


def stencil(x):
    p = torch.nn.functional.pad(x, (1, 1, 1, 1))
    return 0.5 * x + 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])


def pull(all):
    d = all[None, :, :3] - all[:, None, :3]
    by = all[None, :, 3] * ((d * d).sum(2) + 1e-4) ** -1.5
    return (d * by[:, :, None]).sum(1)


eager = {
    "copy": lambda: x.clone(),
    "map a*b+1": lambda: x * y + 1,
    "sum": lambda: x.sum(),
    "sum of a*b": lambda: (x * y).sum(),
    "argmax": lambda: x.argmax(),
    "sum of columns": lambda: table.sum(0),
    "cumsum": lambda: x.cumsum(0),
    "compact": lambda: a[a > 0],
    "histogram, random": lambda: torch.bincount(codes, minlength=256),
    "histogram, all equal": lambda: torch.bincount(equal, minlength=256),
    "sort u32": lambda: torch.sort(words),
    "sort pairs": lambda: torch.sort(words, stable=True),
    "sort f16": lambda: torch.sort(halves),
    "top 64": lambda: torch.topk(a, 64),
    "softmax of rows": lambda: torch.softmax(table, 1),
    "layer norm": lambda: torch.nn.functional.layer_norm(table, (side,)),
    "layer norm, softmax, top 64 of rows": lambda: torch.topk(torch.softmax(torch.nn.functional.layer_norm(table[:1000], (side,)), 1), 64, 1),
    "top 64 of rows": lambda: torch.topk(table[:1000], 64, 1),
    "layer norm, softmax, top 64": lambda: torch.topk(torch.softmax(torch.nn.functional.layer_norm(table[:1000], (side,)), 1).flatten(), 64),
    "transpose": lambda: table.t().contiguous(),
    "gather": lambda: a[places],
    f"matmul {matrix}": lambda: left @ right,
    f"matmul f16 {matrix}": lambda: left_half @ right_half,
    f"linear, gelu {matrix}": lambda: gelu(torch.addmm(bias, left, right), approximate="tanh"),
    f"linear f16, relu {matrix}": lambda: torch.relu(torch.addmm(half_bias, left_half, right_half)),
    f"linear f16, gelu {matrix}": lambda: gelu(torch.addmm(half_bias, left_half, right_half), approximate="tanh"),
    "stencil of 5 points": lambda: stencil(table),
    "bodies": lambda: pull(bodies),
    "convolution 3 x 3": lambda: torch.nn.functional.conv2d(pictures, windows, padding=1),
    f"fft of {short}": lambda: torch.fft.fft(waves.reshape(-1, short)),
    f"fft of {long}": lambda: torch.fft.fft(waves.reshape(-1, long)),
    "attention": lambda: attention(q, k, v),
    "attention f16": lambda: attention(q_half, k_half, v_half),
    "attention f16, causal": lambda: attention(q_half, k_half, v_half, is_causal=True),
}
compiled = [f"linear, gelu {matrix}", f"linear f16, relu {matrix}", f"linear f16, gelu {matrix}", "map a*b+1", "sum", "sum of a*b", "argmax", "cumsum", "softmax of rows", "layer norm", "layer norm, softmax, top 64 of rows", "top 64 of rows", "layer norm, softmax, top 64", "transpose", "gather", "stencil of 5 points", "bodies"]


def milliseconds(work):
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    times = []
    runs = 1
    for round in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(runs):
            work()
        end.record()
        torch.cuda.synchronize()
        took = start.elapsed_time(end)
        if round == 0:
            runs = max(1, min(16, int(8 / took)))
        else:
            times.append(took / runs)
    return statistics.median(times)


def told(work, peer, run):
    if only and not any(name in work for name in only):
        return
    try:
        took = milliseconds(run)
        measured.setdefault(work, []).append((took, peer))
        print(json.dumps({"work": work, "peer": peer, "ms": took}), flush=True)
    except Exception as problem:  # A peer that can't do it is told, and the others go on.
        print(json.dumps({"work": work, "peer": peer, "error": str(problem)[:200]}), flush=True)


for work, run in eager.items():
    told(work, "torch", run)
# The product and its epilogue in one call of cuBLASLt.
told(f"linear f16, relu {matrix}", "torch _addmm_activation", lambda: torch._addmm_activation(half_bias, left_half, right_half))
told(f"linear f16, gelu {matrix}", "torch _addmm_activation", lambda: torch._addmm_activation(half_bias, left_half, right_half, use_gelu=True))
for work in compiled:
    told(work, "torch.compile", torch.compile(eager[work]))
if cupy is not None:
    ca, ccodes, cequal, cwords, chalves = (cupy.from_dlpack(t) for t in (x, codes, equal, words.view(torch.int32), halves))
    unsigned = cwords.view(cupy.uint32)
    told("sum", "cupy", lambda: ca.sum())
    told("argmax", "cupy", lambda: ca.argmax())
    told("cumsum", "cupy", lambda: cupy.cumsum(ca))
    told("histogram, random", "cupy", lambda: cupy.bincount(ccodes, minlength=256))
    told("histogram, all equal", "cupy", lambda: cupy.bincount(cequal, minlength=256))
    told("sort u32", "cupy", lambda: cupy.sort(unsigned))
    told("sort f16", "cupy", lambda: cupy.sort(chalves))
    told("sort pairs", "cupy", lambda: cupy.argsort(unsigned))

if against:
    with open(against) as file:
        report = json.load(file)
    copy = 8 * x.numel() / measured["copy"][0][0] * 1e-6 if "copy" in measured else None
    print(f"\n{report['device']}; a device copy (torch) moves {copy:.0f} GB/s\n" if copy else "")
    print("| work | vyre, ms | best peer, ms | peer / vyre | GB/s | of the copy | TFLOP/s |\n|---|---|---|---|---|---|---|")
    for row in report["rows"]:
        best = min(measured.get(row["work"], []), default=None)
        peer, ratio = (f"{best[1]} {best[0]:.3f}", f"{best[0] / row['ms']:.2f}") if best else ("–", "–")
        share = f"{row['gb_per_s'] / copy:.2f}" if copy else "–"
        print(f"| {row['work']} | {row['ms']:.3f} | {peer} | {ratio} | {row['gb_per_s']:.0f} | {share} | {row['gflops'] * 1e-3:.2f} |")
