"""Kernels as ordinary Python: every invocation runs the function itself, so that debuggers, prints and coverage work in it."""

from __future__ import annotations

import builtins
import math
import threading
import types
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from . import language
from .types import Scalar


class Checked:
    """An array whose indices are checked: on a device a load outside gives zero and a store is dropped, and here both are errors."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._name = name
        self._array = array
        self.shape = array.shape
        self.size = array.size

    def __len__(self) -> int:
        return len(self._array)

    def _at(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) != len(self.shape):
            raise IndexError(f"`{self._name}` has {len(self.shape)} axes, and the index is {index!r}")
        for part, extent in zip(parts, self.shape, strict=True):
            if not 0 <= int(part) < extent:
                raise IndexError(f"`{self._name}[{', '.join(str(int(p)) for p in parts)}]` is outside of its shape {self.shape}")
        return parts

    def __getitem__(self, index: Any) -> Any:
        return self._array[self._at(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[self._at(index)] = value

    def __repr__(self) -> str:
        return f"{self._name} = {self._array!r}"


class Workgroup:
    """The invocations of a workgroup. They take turns: one runs until it meets a barrier or its end, then another, so that nothing comes
    between two steps of one of them."""

    def __init__(self, invocations: int) -> None:
        self.memory: dict[object, Checked] = {}
        #: Who holds it runs; waiting at a barrier gives it away.
        self.turn = threading.Condition()
        self._waiting = 0
        self._all = self._live = invocations
        self._round = 0
        self._broken = False

    def barrier(self) -> None:
        with self.turn:
            self._waiting += 1
            mine = self._round
            if self._live < self._all:
                # One that has ended will not meet this barrier.
                self._broken = True
                self.turn.notify_all()
            elif self._waiting == self._all:
                self._waiting = 0
                self._round += 1
                self.turn.notify_all()
            while self._round == mine and not self._broken:
                self.turn.wait()
            if self._round == mine:
                raise _Ended

    def ended(self, failed: bool) -> None:
        with self.turn:
            self._live -= 1
            if failed:
                self._broken = True
                self.turn.notify_all()
            elif self._waiting:
                # Others are at a barrier that this one will not meet any more.
                self._broken = True
                self.turn.notify_all()

    @property
    def is_broken(self) -> bool:
        return self._broken


class _Ended(BaseException):
    """Ends an invocation because another one of its workgroup has failed."""


class Invocation:
    """The words of kernels for one invocation."""

    def __init__(self, workgroup: Workgroup, positions: dict[str, tuple[int, int, int]]) -> None:
        self._workgroup = workgroup
        self._positions = positions

    def ids(self, what: str, axes: int) -> tuple[int, ...]:
        return self._positions[what][3 - axes :]

    def barrier(self) -> None:
        self._workgroup.barrier()

    def shared(self, place: object, shape: tuple[int, ...], dtype: Scalar) -> Checked:
        found = self._workgroup.memory.get(place)
        if found is None:
            found = self._workgroup.memory[place] = Checked("the workgroup's array", np.zeros(shape, dtype.dtype))
        return found

    def local(self, shape: tuple[int, ...], dtype: Scalar) -> Checked:
        return Checked("the local array", np.zeros(shape, dtype.dtype))


class _Math:
    """``math`` or NumPy with functions of 32 bits where kernels have them."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        try:
            return language.IN_32_BITS.get(found, found)
        except TypeError:
            return found


def in_32_bits(function: Callable[..., Any], made: dict[Any, Any] | None = None) -> Callable[..., Any]:
    """The same code, so that breakpoints in it hold, with the names of ``math`` standing for functions of 32-bit floats."""
    made = {} if made is None else made
    function = getattr(function, "__wrapped__", function)
    if function in made:
        return made[function]  # type: ignore[no-any-return]
    assert isinstance(function, types.FunctionType)
    names = dict(function.__globals__)
    names.setdefault("__builtins__", builtins)
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    made[function] = copy
    for name in function.__code__.co_names:
        found = names.get(name)
        if found is math or found is np:
            names[name] = _Math(found)
            continue
        inner: Any = getattr(found, "__wrapped__", found)
        try:
            same = language.IN_32_BITS.get(found)
        except TypeError:
            continue
        if same is not None:
            names[name] = same
        elif isinstance(inner, types.FunctionType) and inner.__module__ != language.__name__:
            names[name] = in_32_bits(inner, made)
    return copy


def _boxes(extents: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return product(*(range(extent) for extent in extents))


def run(
    function: Callable[..., Any],
    arguments: list[Any],
    grid: tuple[int, int, int],
    size: tuple[int, int, int],
    has_barriers: bool,
) -> None:
    """Runs all invocations. Extents have the slowest axis first."""
    body = in_32_bits(function)
    for group in _boxes(grid):
        workgroup = Workgroup(math.prod(size))
        invocations = []
        for local in _boxes(size):
            place = (group[0] * size[0] + local[0], group[1] * size[1] + local[1], group[2] * size[2] + local[2])
            words = {"grid": place, "local_id": local, "workgroup_id": group, "workgroup_size": size, "num_workgroups": grid}
            invocations.append(Invocation(workgroup, words))  # type: ignore[arg-type]
        if has_barriers:
            _together(body, arguments, workgroup, invocations)
        else:
            for invocation in invocations:
                _one(body, arguments, invocation)


def _one(body: Callable[..., Any], arguments: list[Any], invocation: Invocation) -> None:
    before = language.current.invocation
    language.current.invocation = invocation
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            body(*arguments)
    finally:
        language.current.invocation = before


def _together(body: Callable[..., Any], arguments: list[Any], workgroup: Workgroup, invocations: list[Invocation]) -> None:
    """One thread for each invocation; the first error ends all."""
    errors: list[BaseException] = []

    def work(invocation: Invocation) -> None:
        failed = False
        with workgroup.turn:
            try:
                if not workgroup.is_broken:
                    _one(body, arguments, invocation)
            except _Ended:
                failed = True
            except BaseException as error:
                failed = True
                errors.append(error)
            workgroup.ended(failed)

    threads = [threading.Thread(target=work, args=(invocation,), daemon=True) for invocation in invocations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    if workgroup.is_broken:
        raise RuntimeError("some invocations of a workgroup ended while others waited at a barrier; all have to meet it")
