"""Ten kernels of the tests at sizes that matter, beside Numba on all cores (`njit(parallel=True)`, without fastmath, so that both are exact).

    python python/bench/against_numba.py [device] [kernel …]

Both work on the same NumPy arrays with as many threads, and what they compute is compared first. vyre also works on arrays of its own
(`stays`), in the same kind of memory; a call of those is one with the wait for its end. They take turns; each turn begins after a pause, so
that threads of the other no longer look for work. Times are the best and the median of all calls; the last columns are Numba's over vyre's.

`VYRE_THREADS` and `NUMBA_NUM_THREADS` limit the threads. Where both are 1, processor time is compared, which other work on a machine hardly
changes.
"""

import math
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import kernels_in_python as ten  # noqa: E402

from numba import njit, prange  # noqa: E402

import vyre  # noqa: E402

f32, zeros = np.float32, np.zeros

LANES, EACH = 256, 64
#: With one thread each, what others do on the machine does not count.
CLOCK = time.process_time if os.environ.get("VYRE_THREADS") == os.environ.get("NUMBA_NUM_THREADS") == "1" else time.perf_counter


# Those of the tests show workgroup memory in sums and products, and the shortest way to count; these are the same as Numba's, and the way to
# count without everybody waiting for everybody.
@vyre.kernel
def block_sums(a: vyre.f32[:], sums: vyre.f32[:]):
    g = vyre.grid(1)
    if g < sums.size:
        total = 0.0
        for i in range(g * 64, min((g + 1) * 64, a.size)):
            total += a[i]
        sums[g] = total


@vyre.kernel
def matmul(a: vyre.f32[:, :], b: vyre.f32[:, :], out: vyre.f32[:, :]):
    i, j = vyre.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        out[i, j] = total


@vyre.kernel(workgroup=LANES)
def histogram(values: vyre.f32[:], counts: vyre.u32[:]):
    part = vyre.shared(LANES, vyre.u32)
    lane, group = vyre.local_id(), vyre.workgroup_id()
    for k in range(EACH):
        i = (group * EACH + k) * LANES + lane
        if i < values.size:
            vyre.atomic_add(part, vyre.clamp(int(values[i] * LANES), 0, LANES - 1), 1)
    vyre.barrier()
    vyre.atomic_add(counts, lane, part[lane])


OWN = {"block_sums": block_sums, "matmul": matmul, "histogram": histogram[(1 << 24) // (LANES * EACH)]}


def numba_kernels():
    """The same in Numba: the same loops, with the outermost one in parallel."""
    jit = njit(parallel=True)

    @jit
    def squares(a, out):
        for i in prange(a.size):
            out[i] = a[i] * a[i] + f32(1)

    @jit
    def saxpy(alpha, x, y, out):
        for i in prange(x.size):
            out[i] = alpha * x[i] + y[i]

    @jit
    def block_sums(a, sums):
        for g in prange(sums.size):
            total = f32(0)
            for i in range(g * 64, min((g + 1) * 64, a.size)):
                total += a[i]
            sums[g] = total

    @jit
    def softmax_rows(a, out):
        for row in prange(a.shape[0]):
            top = f32(-math.inf)
            for j in range(a.shape[1]):
                top = max(top, a[row, j])
            total = f32(0)
            for j in range(a.shape[1]):
                total += math.exp(a[row, j] - top)
            for j in range(a.shape[1]):
                out[row, j] = math.exp(a[row, j] - top) / total

    @jit
    def heat(a, out):
        rows, columns = a.shape
        for i in prange(rows):
            for j in range(columns):
                if 0 < i < rows - 1 and 0 < j < columns - 1:
                    out[i, j] = f32(0.25) * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
                else:
                    out[i, j] = a[i, j]

    @jit
    def matmul(a, b, out):
        for i in prange(a.shape[0]):
            for j in range(b.shape[1]):
                out[i, j] = f32(0)
            for k in range(a.shape[1]):
                for j in range(b.shape[1]):
                    out[i, j] += a[i, k] * b[k, j]

    @jit
    def histogram(values, counts):
        each = LANES * EACH
        parts = np.zeros(((values.size + each - 1) // each, counts.size), np.uint32)
        for g in prange(parts.shape[0]):
            for i in range(g * each, min((g + 1) * each, values.size)):
                parts[g, min(int(values[i] * counts.size), counts.size - 1)] += 1
        for g in range(parts.shape[0]):
            for b in range(counts.size):
                counts[b] += parts[g, b]

    @jit
    def mandelbrot(steps, out):
        height, width = out.shape
        for i in prange(height):
            for j in range(width):
                cre, cim = f32(-2) + f32(3) * f32(j) / f32(width), f32(-1) + f32(2) * f32(i) / f32(height)
                re = im = f32(0)
                n = 0
                while n < steps and re * re + im * im <= f32(4):
                    re, im = re * re - im * im + cre, f32(2) * re * im + cim
                    n += 1
                out[i, j] = n

    @jit
    def scan_blocks(a, out):
        for g in prange((a.size + 63) // 64):
            total = np.int32(0)
            for i in range(g * 64, min((g + 1) * 64, a.size)):
                total += a[i]
                out[i] = total

    @jit
    def nbody(dt, place, mass, speed):
        for i in prange(mass.size):
            x = y = f32(0)
            for other in range(mass.size):
                if other != i:
                    dx, dy = place[other, 0] - place[i, 0], place[other, 1] - place[i, 1]
                    r = math.sqrt(dx * dx + dy * dy + f32(0.01))
                    by = mass[other] / (r * r * r)
                    x += dx * by
                    y += dy * by
            speed[i, 0] += f32(dt) * x
            speed[i, 1] += f32(dt) * y

    return locals()


def large(name):
    random = np.random.default_rng(1)
    floats = lambda *shape: random.random(shape, dtype=f32)  # noqa: E731
    n = 1 << 24
    return {
        "squares": lambda: (floats(n), zeros(n, f32)),
        "saxpy": lambda: (f32(2.5), floats(n), floats(n), zeros(n, f32)),
        "block_sums": lambda: (floats(n), zeros(n // 64, f32)),
        "softmax_rows": lambda: (floats(4096, 1024), zeros((4096, 1024), f32)),
        "heat": lambda: (floats(4096, 4096), zeros((4096, 4096), f32)),
        "matmul": lambda: (floats(512, 512), floats(512, 512), zeros((512, 512), f32)),
        "histogram": lambda: (floats(n), zeros(256, np.uint32)),
        "mandelbrot": lambda: (200, zeros((1024, 1536), np.int32)),
        "scan_blocks": lambda: (random.integers(-9, 9, n, dtype=np.int32), zeros(n, np.int32)),
        "nbody": lambda: (f32(0.1), floats(4096, 2), floats(4096), zeros((4096, 2), f32)),
    }[name]()


def taking_turns(calls, seconds=2.0):
    """The times of calls that take turns."""
    times = [[] for _ in calls]
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(times[0]) < 12:
        for call, own in zip(calls, times, strict=True):
            time.sleep(0.003)
            call()
            turn = time.perf_counter()
            while not own or time.perf_counter() - turn < 0.03:
                begin = CLOCK()
                call()
                own.append(CLOCK() - begin)
    return times


def compared(name, ours, theirs):
    """Both compute the same, from the same."""
    args, again = large(name), large(name)
    ours(*args)
    theirs(*again)
    if name == "mandelbrot":  # A step of the loop is rounded otherwise where Numba contracts it.
        assert (args[-1] != again[-1]).mean() < 0.01
    else:
        np.testing.assert_allclose(args[-1], again[-1], rtol=2e-4, atol=1e-5, err_msg=name)


def main(device="cpu", *names):
    others = numba_kernels()
    names_of = ("vyre", "stays", "Numba")
    print(f"{'best, median of':14} " + " ".join(f"{name:>21}" for name in names_of) + "   Numba/vyre   Numba/stays")
    for kernel in ten.KERNELS:
        if names and kernel.name not in names:
            continue
        args, on, theirs = large(kernel.name), OWN.get(kernel.name, kernel).on(device), others[kernel.name]
        compared(kernel.name, on, theirs)
        own = tuple(vyre.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args)
        calls = (lambda on=on, args=args: on(*args), lambda on=on, own=own: (on(*own), vyre.synchronize()))
        times = taking_turns([*calls, lambda theirs=theirs, args=args: theirs(*args)])
        found = [(min(one), statistics.median(one)) for one in times]
        shown = " ".join(f"{best * 1e3:8.3f} {median * 1e3:8.3f} ms" for best, median in found)
        ratios = "  ".join(f"{found[2][0] / best:5.2f} {found[2][1] / median:5.2f}" for best, median in found[:2])
        print(f"{kernel.name:14} {shown}  {ratios}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
