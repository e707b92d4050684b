"""Ten kernels of the tests at sizes that matter, beside Numba on all cores (`njit(parallel=True, fastmath=False)`), or NumPy where there is
no Numba.

    python python/bench/against_numba.py [device]

Both work on the same NumPy arrays. Times are the best of several runs after warming up; the last column is Numba's time over vyre's.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import kernels_in_python as ten  # noqa: E402

try:
    from numba import njit, prange
except ImportError:
    njit = None

f32, zeros = np.float32, np.zeros

import vyre  # noqa: E402

LANES, EACH = 256, 64


# Those of the tests show workgroup memory in a product, and the shortest way to count; these are the same as Numba's, and the way to count
# without everybody waiting for everybody.
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


OWN = {"matmul": matmul, "histogram": histogram[(1 << 24) // (LANES * EACH)]}


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

    @njit
    def histogram(values, counts):
        for i in range(values.size):
            counts[min(int(values[i] * counts.size), counts.size - 1)] += 1

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


def best(call):
    call()
    times = []
    end = time.perf_counter() + 1.0
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def main(device):
    others = numba_kernels() if njit is not None else {}
    print(f"{'kernel':14} {'vyre':>10} {'Numba':>10}  Numba/vyre")
    for kernel in ten.KERNELS:
        args = large(kernel.name)
        on = OWN.get(kernel.name, kernel).on(device)
        ours = best(lambda on=on, args=args: on(*args))
        if kernel.name in others:
            theirs = best(lambda kernel=kernel, args=args: others[kernel.name](*args))
            print(f"{kernel.name:14} {ours * 1e3:8.3f}ms {theirs * 1e3:8.3f}ms {theirs / ours:10.2f}")
        else:
            print(f"{kernel.name:14} {ours * 1e3:8.3f}ms {'-':>10}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["cpu"]))
