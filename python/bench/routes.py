"""Where the router runs kernels, over sizes from 2⁴ to 2²⁸, beside every device that is here.

    python python/bench/routes.py [seconds for a size]

For each kernel and size the engine has a while to learn; then calls on arrays that stay are timed, each with the wait for its end, where
the router puts them and on each device by itself. Times are medians in µs.
"""

import statistics
import sys
import time

import numpy as np

import vyre


@vyre.kernel
def product(a: vyre.f32[:], b: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < out.size:
        out[i] = a[i] * b[i] + 1.0


@vyre.kernel
def block_sums(a: vyre.f32[:], b: vyre.f32[:], out: vyre.f32[:]):
    g = vyre.grid(1)
    if g < out.size // 64:
        total = 0.0
        for i in range(g * 64, min((g + 1) * 64, a.size)):
            total += a[i]
        out[g] = total


@vyre.kernel
def logistic(a: vyre.f32[:], b: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < out.size:
        x = a[i]
        for _ in range(256):
            x = 3.5 * x * (1.0 - x)
        out[i] = x


def median(call, seconds, most=200):
    """The median of calls, as many as there is time for."""
    times, begun = [], time.perf_counter()
    while len(times) < 3 or (len(times) < most and time.perf_counter() - begun < seconds):
        begin = time.perf_counter()
        call()
        vyre.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main(seconds="0.2"):
    seconds = float(seconds)
    here = [device.id for device in vyre.devices() if device.absent is None and device.id != "reference"]
    print(f"| kernel | elements | {' | '.join(f'{name}, µs' for name in here)} | the router takes | µs | over the fastest |")
    print("|---|---|" + "---|" * (len(here) + 3))
    for kernel in (product, block_sums, logistic):
        for power in range(4, 29, 4):
            n = 1 << power
            a, b = (vyre.array(np.full(n, value, np.float32)) for value in (0.3, 2.0))
            out = vyre.zeros(n)
            median(lambda: kernel(a, b, out), 2 * seconds)
            chosen = median(lambda: kernel(a, b, out), seconds)
            where = vyre.explain(kernel)["backend"]
            alone = {}
            for name in here:
                on = kernel.on(name)
                on(a, b, out)
                alone[name] = median(lambda on=on: on(a, b, out), seconds)
            shown = " | ".join(f"{alone[name] * 1e6:.1f}" for name in here)
            over = chosen / min(alone.values())
            print(f"| {kernel.name} | 2^{power} | {shown} | {where} | {chosen * 1e6:.1f} | {over:.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
