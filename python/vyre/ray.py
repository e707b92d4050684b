"""Kernels under Ray: batches of Ray Data through actors that have one engine each, bound to a GPU where they are given one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _vyre

if TYPE_CHECKING:
    from ._python.kernel import PythonKernel
    from ._vyre import Kernel

__all__ = ["Worker", "map_batches"]


class Worker:
    """An actor with a kernel. Ray shows it only the GPUs that it was given; the engine finds those."""

    def __init__(self, kernel: Any, inputs: list[str], result: str, dtype: str, pack: bytes | None, numbers: dict[str, Any]) -> None:
        if pack is not None:
            _vyre.import_pack(pack)
        self._kernel = kernel
        self._inputs = inputs
        self._result = result
        self._dtype = np.dtype(dtype)
        self._numbers = numbers

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        columns = {name: np.ascontiguousarray(batch[name]) for name in self._inputs}
        first = columns[self._inputs[0]]
        out = np.empty(first.shape, self._dtype)
        if out.size:
            self._kernel(**columns, **self._numbers, **{self._result: out})
        return {**batch, self._result: out}

    def metrics(self) -> dict[str, int]:
        return _vyre.metrics()


def map_batches(
    dataset: Any,
    kernel: Kernel | PythonKernel,
    inputs: list[str],
    result: str,
    *,
    dtype: Any = "float32",
    gpus: float = 0,
    concurrency: int = 1,
    warm: bool = True,
    numbers: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A dataset of Ray with a column that a kernel makes of others. Columns go to the kernel's parameters of the same names, ``numbers``
    to the others. ``concurrency`` actors are started, each with so many ``gpus``; with ``warm`` they are given what was compiled here."""
    pack = _vyre.export_pack()[0] if warm else None
    arguments = (kernel, inputs, result, np.dtype(dtype).name, pack, numbers or {})
    if gpus:
        options["num_gpus"] = gpus
    return dataset.map_batches(Worker, fn_constructor_args=arguments, batch_format="numpy", concurrency=concurrency, **options)
