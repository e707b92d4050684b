"""Ten kernels in Python, with arguments for each: used by the tests, and read as examples."""

import math

import numpy as np

import vyre

TILE = 8
BLOCK = 64


@vyre.kernel
def squares(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        out[i] = a[i] * a[i] + 1.0


@vyre.kernel
def saxpy(alpha: vyre.f32, x: vyre.f32[:], y: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i >= len(x):
        return
    out[i] = alpha * x[i] + y[i]


@vyre.kernel(workgroup=(BLOCK,))
def block_sums(a: vyre.f32[:], sums: vyre.f32[:]):
    i = vyre.grid(1)
    lane = vyre.local_id()
    part = vyre.shared((BLOCK,), vyre.f32)
    part[lane] = a[i] if i < a.size else 0.0
    vyre.barrier()
    width = BLOCK // 2
    while width > 0:
        if lane < width:
            part[lane] += part[lane + width]
        vyre.barrier()
        width //= 2
    if lane == 0:
        sums[vyre.workgroup_id()] = part[0]


@vyre.kernel
def softmax_rows(a: vyre.f32[:, :], out: vyre.f32[:, :]):
    row = vyre.grid(1)
    rows, columns = a.shape
    if row >= rows:
        return
    top = -math.inf
    for j in range(columns):
        top = max(top, a[row, j])
    total = 0.0
    for j in range(columns):
        total += math.exp(a[row, j] - top)
    for j in range(columns):
        out[row, j] = math.exp(a[row, j] - top) / total


@vyre.kernel
def heat(a: vyre.f32[:, :], out: vyre.f32[:, :]):
    i, j = vyre.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1:
            out[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        else:
            out[i, j] = a[i, j]


@vyre.kernel(workgroup=(TILE, TILE))
def matmul(a: vyre.f32[:, :], b: vyre.f32[:, :], out: vyre.f32[:, :]):
    i, j = vyre.grid(2)
    y, x = vyre.local_id(2)
    left = vyre.shared((TILE, TILE), vyre.f32)
    right = vyre.shared((TILE, TILE), vyre.f32)
    total = 0.0
    for tile in range((a.shape[1] + TILE - 1) // TILE):
        k = tile * TILE
        left[y, x] = a[i, k + x] if i < a.shape[0] and k + x < a.shape[1] else 0.0
        right[y, x] = b[k + y, j] if k + y < b.shape[0] and j < b.shape[1] else 0.0
        vyre.barrier()
        for n in range(TILE):
            total += left[y, n] * right[n, x]
        vyre.barrier()
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = total


@vyre.kernel
def histogram(values: vyre.f32[:], counts: vyre.u32[:]):
    i = vyre.grid(1)
    if i < values.size:
        bin = vyre.clamp(int(values[i] * counts.size), 0, counts.size - 1)
        vyre.atomic_add(counts, bin, 1)


def magnitude(re, im):
    return re * re + im * im


@vyre.kernel
def mandelbrot(steps: vyre.i32, out: vyre.i32[:, :]):
    i, j = vyre.grid(2)
    height, width = out.shape
    if i >= height or j >= width:
        return
    cre = -2.0 + 3.0 * j / width
    cim = -1.0 + 2.0 * i / height
    re = im = 0.0
    n = 0
    while n < steps and magnitude(re, im) <= 4.0:
        re, im = re * re - im * im + cre, 2.0 * re * im + cim
        n += 1
    out[i, j] = n


@vyre.kernel(workgroup=BLOCK)
def scan_blocks(a: vyre.i32[:], out: vyre.i32[:]):
    i = vyre.grid(1)
    lane = vyre.local_id()
    part = vyre.shared(BLOCK, vyre.i32)
    part[lane] = a[i] if i < a.size else 0
    vyre.barrier()
    reach = 1
    while reach < BLOCK:
        before = part[lane - reach] if lane >= reach else 0
        vyre.barrier()
        part[lane] += before
        vyre.barrier()
        reach *= 2
    if i < out.size:
        out[i] = part[lane]


@vyre.function
def pull(dx, dy, mass):
    distance = math.sqrt(dx * dx + dy * dy + 0.01)
    return mass / distance**3


@vyre.kernel
def nbody(dt: vyre.f32, place: vyre.f32[:, :], mass: vyre.f32[:], speed: vyre.f32[:, :]):
    i = vyre.grid(1)
    if i < mass.size:
        force = vyre.local((2,), vyre.f32)
        for other in range(mass.size):
            if other == i:
                continue
            dx = place[other, 0] - place[i, 0]
            dy = place[other, 1] - place[i, 1]
            by = pull(dx, dy, mass[other])
            force[0] += dx * by
            force[1] += dy * by
        for axis in range(2):
            speed[i, axis] += dt * force[axis]


def arguments(name):
    """Small arguments: inputs, and results that are compared."""
    random = np.random.default_rng(1)
    floats = lambda *shape: random.random(shape, dtype=np.float32)  # noqa: E731
    zeros = lambda *shape, dtype=np.float32: np.zeros(shape, dtype)  # noqa: E731
    return {
        "squares": lambda: (floats(100), zeros(100)),
        "saxpy": lambda: (2.5, floats(100), floats(100), zeros(100)),
        "block_sums": lambda: (floats(4 * BLOCK - 5), zeros(4)),
        "softmax_rows": lambda: (floats(20, 30), zeros(20, 30)),
        "heat": lambda: (floats(20, 30), zeros(20, 30)),
        "matmul": lambda: (floats(19, 13), floats(13, 22), zeros(19, 22)),
        "histogram": lambda: (floats(500), zeros(10, dtype=np.uint32)),
        "mandelbrot": lambda: (20, zeros(12, 18, dtype=np.int32)),
        "scan_blocks": lambda: (random.integers(-9, 9, 3 * BLOCK - 7, dtype=np.int32), zeros(3 * BLOCK - 7, dtype=np.int32)),
        "nbody": lambda: (0.1, floats(17, 2), floats(17), zeros(17, 2)),
    }[name]()


def expected(name, args):
    """What NumPy says."""
    match name:
        case "squares":
            return args[0] ** 2 + 1
        case "saxpy":
            return np.float32(args[0]) * args[1] + args[2]
        case "block_sums":
            return np.pad(args[0], (0, -len(args[0]) % BLOCK)).reshape(-1, BLOCK).sum(1)
        case "softmax_rows":
            e = np.exp(args[0] - args[0].max(1, keepdims=True))
            return e / e.sum(1, keepdims=True)
        case "heat":
            out = args[0].copy()
            a = args[0]
            out[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
            return out
        case "matmul":
            return args[0] @ args[1]
        case "histogram":
            return np.histogram(args[0], 10, (0, 1))[0]
        case "scan_blocks":
            return np.pad(args[0], (0, -len(args[0]) % BLOCK)).reshape(-1, BLOCK).cumsum(1).reshape(-1)[: len(args[0])]
        case "nbody":
            d = args[1][None] - args[1][:, None]
            r = np.sqrt((d**2).sum(-1) + np.float32(0.01))
            w = args[2] / r**3
            np.fill_diagonal(w, 0)
            return args[0] * (d * w[..., None]).sum(1)
        case "mandelbrot":
            height, width = args[1].shape
            c = -2 + 3 * np.arange(width) / width + 1j * (-1 + 2 * np.arange(height) / height)[:, None]
            z, n = np.zeros_like(c), np.zeros(c.shape, int)
            for _ in range(args[0]):
                n += abs(z) ** 2 <= 4
                z = np.where(abs(z) ** 2 <= 4, z * z + c, z)
            return n


KERNELS = [squares, saxpy, block_sums, softmax_rows, heat, matmul, histogram, mandelbrot, scan_blocks, nbody]
