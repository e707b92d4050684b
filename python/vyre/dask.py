"""Kernels on Dask's arrays: blocks that are larger together than any machine, on all workers of a cluster.

Each worker process opens one engine when its first block comes. Kernels travel by content. ``warm`` gives workers what was compiled and
decided here; ``collect`` brings home what they have compiled and decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import __version__, _vyre
from ._packs import PackReport, _checked

if TYPE_CHECKING:
    from ._python.kernel import PythonKernel
    from ._vyre import Kernel

__all__ = ["collect", "map_blocks", "map_overlap", "metrics", "warm"]


def _on_block(*args: Any, kernel: Any, result: np.dtype[Any]) -> Any:
    """The kernel on one block. The result is as large as the block."""
    blocks = [argument for argument in args if isinstance(argument, np.ndarray)]
    out = np.empty(blocks[0].shape, result)
    if out.size:
        kernel(*(np.ascontiguousarray(argument) if isinstance(argument, np.ndarray) else argument for argument in args), out)
    return out


def _options(kernel: Kernel | PythonKernel, arrays: tuple[Any, ...], dtype: Any) -> dict[str, Any]:
    first = next((array for array in arrays if hasattr(array, "dask")), None)
    if first is None:
        raise TypeError("at least one argument has to be an array of Dask")
    result = np.dtype(dtype if dtype is not None else first.dtype)
    return {"kernel": kernel, "result": result, "dtype": result, "meta": np.empty((0,) * first.ndim, result)}


def map_blocks(kernel: Kernel | PythonKernel, *args: Any, dtype: Any = None) -> Any:
    """An array of Dask whose blocks are a kernel's results on the blocks of others. ``args`` are all arguments of the kernel but its
    last, in their order: arrays of Dask, and numbers. The last is the result, as large as the first block."""
    import dask.array

    return dask.array.map_blocks(_on_block, *args, **_options(kernel, args, dtype))


def map_overlap(kernel: Kernel | PythonKernel, *args: Any, depth: Any, boundary: Any = "none", dtype: Any = None) -> Any:
    """As ``map_blocks``, with ``depth`` elements of the neighbours around each block, which are cut off from the result."""
    import dask.array

    options = _options(kernel, args, dtype)
    return dask.array.map_overlap(_on_block, *args, depth=depth, boundary=boundary, **options)


def _take_in(pack: bytes, key: bytes | None, version: str) -> tuple[int, int, bool] | str:
    # Packs of another version hold nothing that this one would find.
    return f"this worker has vyre {__version__}" if version != __version__ else _vyre.import_pack(pack, key)


def _give_out(key: bytes | None) -> bytes:
    return _vyre.export_pack(key)[0]


def warm(client: Any, key: bytes | None = None) -> dict[str, PackReport]:
    """Sends everything that was compiled and decided here to all workers, so that they neither compile nor tune it; what came to each.
    Workers that come later get it, too."""
    from distributed import WorkerPlugin

    class Warm(WorkerPlugin):  # type: ignore[misc]
        name = "vyre-warm"

        def __init__(self, pack: bytes) -> None:
            self.pack = pack

        def setup(self, worker: Any) -> None:
            _take_in(self.pack, key, __version__)

    pack = _give_out(_checked(key))
    told = client.run(_take_in, pack, key, __version__)
    if wrong := {worker: report for worker, report in told.items() if isinstance(report, str)}:
        worker, report = next(iter(wrong.items()))
        raise RuntimeError(f"{worker}: {report}, and here is {__version__}; install the same everywhere")
    client.register_plugin(Warm(pack))
    return {worker: PackReport(*report) for worker, report in told.items()}


def collect(client: Any, key: bytes | None = None) -> PackReport:
    """Brings home what the workers have compiled and decided; the sum of what came."""
    reports = [_vyre.import_pack(pack, key) for pack in client.run(_give_out, _checked(key)).values()]
    return PackReport(sum(report[0] for report in reports), sum(report[1] for report in reports), any(report[2] for report in reports))


def metrics(client: Any) -> dict[str, dict[str, int]]:
    """What the engine of each worker has counted: ``compiles``, ``dispatches`` and so on."""
    found: dict[str, dict[str, int]] = client.run(_vyre.metrics)
    return found
