"""Measuring kernels: ``vyre.bench`` times calls, ``vyre.tune`` finds the best launch."""

from __future__ import annotations

import html
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from ._vyre import Array, Kernel, synchronize

if TYPE_CHECKING:
    from ._python.kernel import PythonKernel


class Progress:
    """A bar on the terminal; nothing where there is none."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._last = 0.0

    def __call__(self, done: int, most: int) -> None:
        now = time.monotonic()
        if self._shown and (now - self._last > 0.1 or done >= most):
            self._last = now
            full = 30 * done // max(most, 1)
            sys.stderr.write(f"\r{self._what} {'█' * full}{'·' * (30 - full)} {done}/{most}")
            sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = (f"<tr><th style='text-align:left'>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{''.join(cells)}</table>"


class Timing:
    """The times of a kernel's calls, in seconds: ``median``, ``best``, and all ``times`` in their order."""

    def __init__(self, name: str, times: list[float], device_times: list[float], bytes_touched: int) -> None:
        self.name = name
        self.times = times
        #: Times on the device alone, where it measures them.
        self.device_times = device_times
        #: Bytes of all arrays together.
        self.bytes = bytes_touched
        self.median = statistics.median(times)
        self.best = min(times)

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("median", _time(self.median)), ("best", _time(self.best)), ("calls", str(len(self.times)))]
        if self.device_times:
            rows.insert(1, ("on the device", _time(statistics.median(self.device_times))))
        if self.bytes:
            rows.append(("arrays", f"{self.bytes / 1e6:.3g} MB, {self.bytes / self.median / 1e9:.3g} GB/s"))
        return rows

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{name} {value}" for name, value in self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """A table, and every call as a dot: its time over its position."""
        top = sorted(self.times)[int(0.99 * (len(self.times) - 1))] * 1.1
        dots = "".join(
            f"<circle cx='{400 * at / len(self.times):.1f}' cy='{100 - 100 * min(value / top, 1):.1f}' r='1.5'/>"
            for at, value in enumerate(self.times[-2000:])
        )
        plot = f"<svg width='400' height='100' style='border:1px solid #ccc' fill='steelblue'>{dots}</svg>"
        return f"<b>{html.escape(self.name)}</b>{_table(self._rows())}{plot}"


def bench(kernel: Kernel | PythonKernel, *args: Any, seconds: float = 1.0, **named: Any) -> Timing:
    """Calls a kernel again and again for about this long, each time waiting for its end, after calls that compile and warm up."""
    arguments = [*args, *named.values()]
    # Work on memory of the caller has to be done when a call returns; arrays of vyre can be launched on, and tell the device's time.
    is_resident = all(isinstance(argument, (Array, int, float)) for argument in arguments)
    times: list[float] = []
    device_times: list[float] = []
    progress = Progress(f"bench {kernel.name}")
    begin = time.perf_counter()
    warm_until = begin + 0.1 * seconds
    end = begin + seconds
    try:
        while True:
            started = time.perf_counter()
            if is_resident:
                launch = kernel.launch(*args, **named)
                launch.wait()
                spent = launch.device_time
            else:
                kernel(*args, **named)
                synchronize()
                spent = None
            now = time.perf_counter()
            if started >= warm_until or now >= end:
                times.append(now - started)
                if spent is not None:
                    device_times.append(spent)
            progress(int(1000 * min(now - begin, seconds)), int(1000 * seconds))
            if now >= end:
                break
    finally:
        progress.close()
    touched = sum(int(getattr(argument, "nbytes", 0)) for argument in arguments)
    return Timing(kernel.name, times, device_times, touched)


class Tuned(dict[str, Any]):
    """What a comparison of launches has decided, and on what evidence."""

    def _rows(self) -> list[tuple[str, str]]:
        evidence = self["evidence"]
        low, high = evidence["interval"]
        return [
            ("workgroup", " x ".join(str(n) for n in self["workgroup_size"])),
            ("verdict", str(self["verdict"])),
            ("time", f"{_time(evidence['chosen_ns'] / 1e9)}, {_time(evidence['default_ns'] / 1e9)} before"),
            ("difference", f"{evidence['difference']:+.1%} ({low:+.1%} to {high:+.1%})"),
            ("compared", f"{evidence['candidates']} launches, {evidence['samples']} timings"),
            ("device", evidence["device"]),
        ]

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _table(self._rows())


def tune(kernel: Kernel | PythonKernel, *args: Any, device: str | None = None, **named: Any) -> Tuned:
    """Compares the launches of a kernel on these arguments, and keeps the best for all later calls like this. The arguments are read and
    not written. Without ``device`` it is the one that a call would run on."""
    native, bound, by_name = kernel, list(args), dict(named)
    if not isinstance(native, Kernel):
        native, bound, by_name = native._for_native(args, named)
    if device is None:
        if not json.loads(native._explain()).get("backend"):
            kernel(*(_copied(argument) for argument in args), **{name: _copied(argument) for name, argument in named.items()})
            synchronize()
        device = json.loads(native._explain())["backend"]
    progress = Progress(f"tune {kernel.name}")
    try:
        return Tuned(json.loads(native._tune(str(device), progress, *bound, **by_name)))
    finally:
        progress.close()


def _copied(argument: Any) -> Any:
    return argument.copy() if hasattr(argument, "copy") else argument
