"""Kernels under Ray: batches of Ray Data through actors that have one engine each, bound to a GPU where they are given one. What the
actors compile and decide comes home."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from . import __version__, _vyre
from ._packs import PackReport

if TYPE_CHECKING:
    from ._python.kernel import PythonKernel
    from ._vyre import Kernel

__all__ = ["Worker", "collect", "map_batches", "metrics"]


class Home:
    """The actor that every worker of a job reports to. Ray Data starts and ends workers as it likes, so nobody could ask them later."""

    def __init__(self) -> None:
        self._packs: dict[str, bytes] = {}
        self._metrics: dict[str, dict[str, int]] = {}

    def tell(self, worker: str, metrics: dict[str, int], pack: bytes | None) -> None:
        self._metrics[worker] = metrics
        if pack is not None:
            self._packs[worker] = pack

    def take_packs(self) -> list[bytes]:
        packs, self._packs = list(self._packs.values()), {}
        return packs

    def metrics(self) -> dict[str, dict[str, int]]:
        return self._metrics


def _home() -> Any:
    """The job's one home, which lives as long as the job."""
    ray = importlib.import_module("ray")
    return ray.remote(Home).options(name="vyre-home", get_if_exists=True, num_cpus=0).remote()


class Worker:
    """An actor with a kernel. Ray shows it only the GPUs that it was given; the engine finds those."""

    def __init__(
        self,
        kernel: Any,
        inputs: list[str],
        result: str,
        dtype: str,
        pack: bytes | None,
        numbers: dict[str, Any],
        version: str = __version__,
        home: Any = None,
    ) -> None:
        if version != __version__:
            raise RuntimeError(f"this worker has vyre {__version__}, and its driver has {version}; install the same everywhere")
        if pack is not None:
            _vyre.import_pack(pack)
        self._kernel = kernel
        self._inputs = inputs
        self._result = result
        self._dtype = np.dtype(dtype)
        self._numbers = numbers
        self._home = home
        self._name = f"{os.uname().nodename}:{os.getpid()}" if hasattr(os, "uname") else str(os.getpid())
        self._known = self._learnt()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        columns = {name: np.ascontiguousarray(batch[name]) for name in self._inputs}
        first = columns[self._inputs[0]]
        out = np.empty(first.shape, self._dtype)
        if out.size:
            self._kernel(**columns, **self._numbers, **{self._result: out})
        self._report()
        return {**batch, self._result: out}

    def metrics(self) -> dict[str, int]:
        return _vyre.metrics()

    def _learnt(self) -> dict[str, int]:
        """What changes when there is something new to give to others."""
        return {name: count for name, count in _vyre.metrics().items() if name in ("compiles", "tuning_decisions")}

    def _report(self) -> None:
        if self._home is None:
            return
        learnt = self._learnt()
        pack = _vyre.export_pack()[0] if learnt != self._known else None
        self._known = learnt
        self._home.tell.remote(self._name, _vyre.metrics(), pack)


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
    arguments = (kernel, inputs, result, np.dtype(dtype).name, pack, numbers or {}, __version__, _home())
    if gpus:
        options["num_gpus"] = gpus
    actors = importlib.import_module("ray.data").ActorPoolStrategy(size=concurrency)
    return dataset.map_batches(Worker, fn_constructor_args=arguments, batch_format="numpy", compute=actors, **options)


def collect() -> PackReport:
    """Brings home what the workers of this job have compiled and decided since the last time; the sum of what came."""
    ray = importlib.import_module("ray")
    reports = [_vyre.import_pack(pack) for pack in ray.get(_home().take_packs.remote())]
    return PackReport(sum(report[0] for report in reports), sum(report[1] for report in reports), any(report[2] for report in reports))


def metrics() -> dict[str, dict[str, int]]:
    """What the engine of each worker of this job has counted: ``compiles``, ``dispatches`` and so on."""
    ray = importlib.import_module("ray")
    found: dict[str, dict[str, int]] = ray.get(_home().metrics.remote())
    return found
