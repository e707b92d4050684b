"""What a call costs: a small kernel on arrays that stay where they are, from Python, beside torch and Triton where they are here.

    python python/bench/overhead.py [device]

`cargo bench` of the engine has the same launch from Rust. Times are medians of many rounds, in microseconds for one call; a round ends
when its work is done, and is long enough that its end does not count.
"""

import statistics
import sys
import time

import numpy as np

import vyre

CALLS, ROUNDS = 200, 30


@vyre.kernel
def add_one(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        out[i] = a[i] + 1.0


@vyre.kernel
def add(a: vyre.f32[:], by: vyre.f32, out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        out[i] = a[i] + by


def microseconds(call, finish):
    for _ in range(CALLS):
        call()
    finish()
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        finish()
        rounds.append((time.perf_counter() - begin) / CALLS)
    return statistics.median(rounds) * 1e6


def main(device):
    x = np.ones(256, np.float32)
    a, b, out = vyre.array(x), np.ones_like(x), vyre.zeros(256)
    one, number = add_one.on(device), add.on(device)
    rows = [
        ("vyre, two arrays that stay", microseconds(lambda: one(a, out), vyre.synchronize)),
        ("vyre, two arrays and a number", microseconds(lambda: number(a, 1.0, out), vyre.synchronize)),
        ("vyre, WGSL of the same", microseconds(lambda: one._native(a, out), vyre.synchronize)),
        ("vyre, NumPy's memory", microseconds(lambda: one(x, b), vyre.synchronize)),
        ("NumPy, np.add(x, 1, out=b)", microseconds(lambda: np.add(x, 1, out=b), lambda: None)),
    ]
    try:
        import torch
    except ImportError:
        print("torch is not here: skipped")
    else:
        where = "cuda" if device.startswith("cuda") else "cpu"
        t, to = torch.ones(256, device=where), torch.zeros(256, device=where)
        finish = torch.cuda.synchronize if where == "cuda" else lambda: None
        rows.append((f"vyre, torch's tensors on {where}", microseconds(lambda: one(t, to), finish)))
        rows.append((f"torch on {where}", microseconds(lambda: torch.add(t, 1.0, out=to), finish)))
        try:
            if where == "cuda":
                rows.append(("Triton", microseconds(triton_call(t, to), finish)))
        except ImportError:
            print("Triton is not here: skipped")
    try:
        import numba
    except ImportError:
        print("Numba is not here: skipped")
    else:

        @numba.njit
        def add_one_numba(a, out):
            for i in range(a.size):
                out[i] = a[i] + np.float32(1)

        rows.append(("Numba, njit", microseconds(lambda: add_one_numba(x, b), lambda: None)))
    for name, time_of_one in rows:
        print(f"{name:32} {time_of_one:8.2f} µs")


def triton_call(t, out):
    import triton
    import triton.language as tl

    @triton.jit
    def add_one_triton(a, out, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(out + at, tl.load(a + at, mask=at < n) + 1.0, mask=at < n)

    return lambda: add_one_triton[(1,)](t, out, 256, block=256)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["cpu"]))
