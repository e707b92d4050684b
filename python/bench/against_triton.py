"""Five kernels beside Triton and Numba on a CUDA device: a map, a sum, softmax, a stencil, a product of matrices, all of f32.

    python python/bench/against_triton.py

All work on arrays that are on the device. They are called for a third of a second first, so that all have compiled and chosen what they run, and
then take turns. Times are the best of several rounds of calls, each until all work of the round is done; what is computed is compared with torch
first. The last columns are the others' times over vyre's.
"""

import math
import time

import numpy as np
import torch
import triton
import triton.language as tl

import vyre

N = 1 << 26
ROWS, COLUMNS = 8192, 4096
SIDE = 8192
SIZE = 2048

LANES, EACH = 256, 64


@vyre.kernel
def squares(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        out[i] = a[i] * a[i] + 1.0


@vyre.kernel(workgroup=LANES)
def sums(a: vyre.f32[:], out: vyre.f32[:]):
    part = vyre.shared(LANES, vyre.f32)
    lane, group = vyre.local_id(), vyre.workgroup_id()
    total = 0.0
    # Four neighbours at a time, which one instruction moves.
    for k in range(0, EACH, 4):
        for i in range(4):
            at = (group * EACH + k) * LANES + lane * 4 + i
            if at < a.size:
                total += a[at]
    part[lane] = total
    vyre.barrier()
    width = LANES // 2
    while width > 0:
        if lane < width:
            part[lane] += part[lane + width]
        vyre.barrier()
        width //= 2
    if lane == 0:
        out[group] = part[0]


PER_LANE = COLUMNS // LANES


@vyre.kernel(workgroup=LANES)
def softmax(a: vyre.f32[:, :], out: vyre.f32[:, :]):
    part = vyre.shared(LANES, vyre.f32)
    mine = vyre.local(PER_LANE, vyre.f32)
    lane, row = vyre.local_id(), vyre.workgroup_id()
    top = -math.inf
    # Four neighbours at a time, which one instruction moves.
    for k in range(0, PER_LANE, 4):
        for i in range(4):
            mine[k + i] = a[row, k * LANES + lane * 4 + i]
            top = max(top, mine[k + i])
    part[lane] = top
    vyre.barrier()
    width = LANES // 2
    while width > 0:
        if lane < width:
            part[lane] = max(part[lane], part[lane + width])
        vyre.barrier()
        width //= 2
    top = part[0]
    vyre.barrier()
    total = 0.0
    for k in range(PER_LANE):
        mine[k] = math.exp(mine[k] - top)
        total += mine[k]
    part[lane] = total
    vyre.barrier()
    width = LANES // 2
    while width > 0:
        if lane < width:
            part[lane] += part[lane + width]
        vyre.barrier()
        width //= 2
    total = 1.0 / part[0]
    for k in range(0, PER_LANE, 4):
        for i in range(4):
            out[row, k * LANES + lane * 4 + i] = mine[k + i] * total


@vyre.kernel(workgroup=(8, 32))
def heat(a: vyre.f32[:, :], out: vyre.f32[:, :]):
    i, j = vyre.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1:
            out[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        else:
            out[i, j] = a[i, j]


TILE, DEPTH, PART = 128, 16, 8


@vyre.kernel(workgroup=256)
def matmul(a: vyre.f32[:, :], b: vyre.f32[:, :], out: vyre.f32[:, :]):
    # Rows of the left tile are written across; four more elements keep them in different banks. Each invocation's elements of a tile are
    # in two runs of four, so that four are read at once, and 32 invocations lie 8 across and 4 down, so that they read few different ones.
    left_tile = vyre.shared((DEPTH, TILE + 4), vyre.f32)
    right_tile = vyre.shared((DEPTH, TILE), vyre.f32)
    left = vyre.local(PART, vyre.f32)
    right = vyre.local(PART, vyre.f32)
    total = vyre.local((PART, PART), vyre.f32)
    tile, index = vyre.workgroup_id(), vyre.local_id()
    across = out.shape[1] // TILE
    row, column = tile // across * TILE, tile % across * TILE
    x, y = index // 32 % 2 * 8 + index % 8, index // 64 * 4 + index % 32 // 8
    for step in range(a.shape[1] // DEPTH):
        k = step * DEPTH
        for i in range(TILE * DEPTH // 256):
            at = i * 256 + index
            left_tile[at % DEPTH, at // DEPTH] = a[row + at // DEPTH, k + at % DEPTH]
            right_tile[at // TILE, at % TILE] = b[k + at // TILE, column + at % TILE]
        vyre.barrier()
        for d in vyre.static_range(DEPTH):
            for half in range(2):
                for i in range(4):
                    left[half * 4 + i] = left_tile[d, half * 64 + y * 4 + i]
                    right[half * 4 + i] = right_tile[d, half * 64 + x * 4 + i]
            for i in range(PART):
                for j in range(PART):
                    total[i, j] = vyre.fma(left[i], right[j], total[i, j])
        vyre.barrier()
    for i in range(PART):
        for j in range(PART):
            out[row + i // 4 * 64 + y * 4 + i % 4, column + j // 4 * 64 + x * 4 + j % 4] = total[i, j]


@triton.jit
def triton_squares(a, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(a + at, mask=at < n)
    tl.store(out + at, x * x + 1.0, mask=at < n)


@triton.jit
def triton_sums(a, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(a + at, mask=at < n, other=0.0)))


@triton.jit
def triton_softmax(a, out, columns, block: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, block)
    x = tl.load(a + at)
    e = tl.exp(x - tl.max(x))
    tl.store(out + at, e / tl.sum(e))


@triton.jit
def triton_heat(a, out, rows, columns, block: tl.constexpr):
    i, j = tl.program_id(1), tl.program_id(0) * block + tl.arange(0, block)
    at = i * columns + j
    inner = (i > 0) & (i < rows - 1) & (j > 0) & (j < columns - 1)
    sides = tl.load(a + at - columns, mask=inner) + tl.load(a + at + columns, mask=inner)
    sides = sides + tl.load(a + at - 1, mask=inner) + tl.load(a + at + 1, mask=inner)
    tl.store(out + at, tl.where(inner, 0.25 * sides, tl.load(a + at, mask=j < columns)), mask=j < columns)


CONFIGS = [
    triton.Config({"m": m, "n": n, "k": k}, num_warps=w, num_stages=s)
    for m, n, k, w, s in [(64, 64, 16, 4, 3), (128, 64, 16, 8, 3), (128, 128, 16, 8, 3), (128, 128, 16, 8, 4), (64, 128, 32, 8, 2)]
]


@triton.autotune(configs=CONFIGS, key=["size"])
@triton.jit
def triton_matmul(a, b, out, size, m: tl.constexpr, n: tl.constexpr, k: tl.constexpr):
    rows = tl.program_id(0) * m + tl.arange(0, m)
    columns = tl.program_id(1) * n + tl.arange(0, n)
    total = tl.zeros((m, n), tl.float32)
    for step in range(0, size, k):
        inner = step + tl.arange(0, k)
        left = tl.load(a + rows[:, None] * size + inner[None, :])
        right = tl.load(b + inner[:, None] * size + columns[None, :])
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(out + rows[:, None] * size + columns[None, :], total)


def numba_kernels():
    from numba import cuda, float32

    @cuda.jit(fastmath=False)
    def squares(a, out):
        i = cuda.grid(1)
        if i < a.size:
            out[i] = a[i] * a[i] + float32(1)

    @cuda.jit
    def sums(a, out):
        part = cuda.shared.array(LANES, float32)
        lane, group = cuda.threadIdx.x, cuda.blockIdx.x
        total = float32(0)
        for k in range(EACH):
            i = (group * EACH + k) * LANES + lane
            if i < a.size:
                total += a[i]
        part[lane] = total
        cuda.syncthreads()
        width = LANES // 2
        while width > 0:
            if lane < width:
                part[lane] += part[lane + width]
            cuda.syncthreads()
            width //= 2
        if lane == 0:
            out[group] = part[0]

    @cuda.jit
    def heat(a, out):
        j, i = cuda.grid(2)
        if i < a.shape[0] and j < a.shape[1]:
            if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1:
                out[i, j] = float32(0.25) * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
            else:
                out[i, j] = a[i, j]

    @cuda.jit
    def softmax(a, out):
        part = cuda.shared.array(LANES, float32)
        mine = cuda.local.array(PER_LANE, float32)
        lane, row = cuda.threadIdx.x, cuda.blockIdx.x
        top = float32(-math.inf)
        for k in range(PER_LANE):
            mine[k] = a[row, k * LANES + lane]
            top = max(top, mine[k])
        part[lane] = top
        cuda.syncthreads()
        width = LANES // 2
        while width > 0:
            if lane < width:
                part[lane] = max(part[lane], part[lane + width])
            cuda.syncthreads()
            width //= 2
        top = part[0]
        cuda.syncthreads()
        total = float32(0)
        for k in range(PER_LANE):
            mine[k] = math.exp(mine[k] - top)
            total += mine[k]
        part[lane] = total
        cuda.syncthreads()
        width = LANES // 2
        while width > 0:
            if lane < width:
                part[lane] += part[lane + width]
            cuda.syncthreads()
            width //= 2
        total = float32(1) / part[0]
        for k in range(PER_LANE):
            out[row, k * LANES + lane] = mine[k] * total

    @cuda.jit
    def matmul(a, b, out):
        left_tile = cuda.shared.array((DEPTH, TILE + 4), float32)
        right_tile = cuda.shared.array((DEPTH, TILE), float32)
        left = cuda.local.array(PART, float32)
        right = cuda.local.array(PART, float32)
        total = cuda.local.array((PART, PART), float32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        row, column, index = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE, y * 16 + x
        for i in range(PART):
            for j in range(PART):
                total[i, j] = float32(0)
        for step in range(a.shape[1] // DEPTH):
            k = step * DEPTH
            for i in range(TILE * DEPTH // 256):
                at = i * 256 + index
                left_tile[at % DEPTH, at // DEPTH] = a[row + at // DEPTH, k + at % DEPTH]
                right_tile[at // TILE, at % TILE] = b[k + at // TILE, column + at % TILE]
            cuda.syncthreads()
            for d in range(DEPTH):
                for i in range(PART):
                    left[i] = left_tile[d, i * 16 + y]
                    right[i] = right_tile[d, i * 16 + x]
                for i in range(PART):
                    for j in range(PART):
                        total[i, j] += left[i] * right[j]
            cuda.syncthreads()
        for i in range(PART):
            for j in range(PART):
                out[row + i * 16 + y, column + j * 16 + x] = total[i, j]

    groups = N // (LANES * EACH)
    return {
        "map": lambda a, out: squares[N // 256, 256](a, out),
        "sum": lambda a, parts, out: (sums[groups, LANES](a, parts), sums[1, LANES](parts, out)),
        "softmax": lambda a, out: softmax[ROWS, LANES](a, out),
        "stencil": lambda a, out: heat[(SIDE // 32, SIDE // 8), (32, 8)](a, out),
        "matmul": lambda a, b, out: matmul[(SIZE // TILE, SIZE // TILE), (16, 16)](a, b, out),
    }, cuda


def round_of(call, finish, calls=20):
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    finish()
    return (time.perf_counter() - begin) / calls


def taking_turns(calls, rounds=9):
    """The best round of each call, which may be missing."""
    for call, finish in filter(None, calls):
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.3:
            round_of(call, finish)
    times = [[] if call else [math.nan] for call in calls]
    for _ in range(rounds):
        for call, own in zip(calls, times, strict=True):
            if call:
                own.append(round_of(*call))
    return [min(own) for own in times]


def main():
    torch.manual_seed(1)
    flat, rows = torch.rand(N, device="cuda"), torch.rand(ROWS, COLUMNS, device="cuda")
    plane = torch.rand(SIDE, SIDE, device="cuda")
    a, b = torch.rand(SIZE, SIZE, device="cuda"), torch.rand(SIZE, SIZE, device="cuda")
    groups = N // (LANES * EACH)
    inner = plane.clone()
    inner[1:-1, 1:-1] = 0.25 * (plane[:-2, 1:-1] + plane[2:, 1:-1] + plane[1:-1, :-2] + plane[1:-1, 2:])
    product = (a.double() @ b.double()).float()
    parts, total = torch.zeros(groups, device="cuda"), torch.zeros(1, device="cuda")
    group_sums, last_sum = sums[groups].on("cuda"), sums[1].on("cuda")
    tiles = SIZE // TILE
    # Triton's exponentials are the device's approximations, as those of fast arithmetic are.
    fast_softmax = vyre.kernel(workgroup=LANES, math="fast")(softmax.function)
    softmax_of_triton = lambda x, out: triton_softmax[(ROWS,)](x, out, COLUMNS, block=COLUMNS, num_warps=8)  # noqa: E731
    # Its name; vyre on tensors; Triton; what it works on, results last; what is right.
    cases = [
        ("map", squares.on("cuda"), lambda x, out: triton_squares[(N // 1024,)](x, out, N, block=1024), (flat, torch.empty_like(flat)),
         flat * flat + 1),
        ("sum", lambda x, parts, out: (group_sums(x, parts), last_sum(parts, out)),
         lambda x, parts, out: (triton_sums[(groups,)](x, parts, N, block=LANES * EACH),
                                triton_sums[(1,)](parts, out, groups, block=groups)),
         (flat, parts, total), flat.double().sum().float().reshape(1)),
        ("softmax", softmax[ROWS].on("cuda"), softmax_of_triton, (rows, torch.empty_like(rows)), torch.softmax(rows, 1)),
        ("softmax, fast", fast_softmax[ROWS].on("cuda"), softmax_of_triton, (rows, torch.empty_like(rows)), torch.softmax(rows, 1)),
        ("stencil", heat.on("cuda"), lambda x, out: triton_heat[(SIDE // 1024, SIDE)](x, out, SIDE, SIDE, block=1024),
         (plane, torch.empty_like(plane)), inner),
        ("matmul", matmul[tiles * tiles].on("cuda"),
         lambda x, y, out: triton_matmul[lambda meta: (SIZE // meta["m"], SIZE // meta["n"])](x, y, out, SIZE),
         (a, b, torch.empty_like(a)), product),
    ]  # fmt: skip
    try:
        others, cuda = numba_kernels()
        flag = torch.zeros(256, device="cuda")
        cuda.jit(lambda a: None)[1, 1](cuda.as_cuda_array(flag))
    except Exception as problem:
        others, cuda = {}, None
        print(f"Numba's CUDA can't be used here ({problem}): skipped")
    print(f"{'kernel':13} {'vyre':>10} {'Triton':>10} {'Numba':>10}  Triton/vyre  Numba/vyre")
    for name, ours, theirs, tensors, right in cases:
        calls = []
        for kind, call in (("vyre", ours), ("Triton", theirs), ("Numba", others.get(name))):
            if call is None:
                calls.append(None)
                continue
            tensors[-1].zero_()
            torch.cuda.synchronize()
            args = tensors
            if kind == "vyre":
                call(*tensors)
            elif kind == "Numba":
                args = tuple(cuda.as_cuda_array(tensor) for tensor in tensors)
                call(*args)
            else:
                call(*tensors)
            torch.cuda.synchronize()
            np.testing.assert_allclose(tensors[-1].cpu().numpy(), right.cpu().numpy(), rtol=2e-4, err_msg=f"{name}, {kind}")
            if kind == "vyre":
                args = tuple(vyre.array(tensor) for tensor in tensors)
            calls.append((lambda call=call, args=args: call(*args), vyre.synchronize if kind == "vyre" else torch.cuda.synchronize))
        times = taking_turns(calls)
        ours_s, triton_s, numba_s = times
        shown = " ".join(f"{seconds * 1e6:8.1f}µs" for seconds in times)
        print(f"{name:13} {shown}  {triton_s / ours_s:11.2f} {numba_s / ours_s:11.2f}", flush=True)


if __name__ == "__main__":
    main()
