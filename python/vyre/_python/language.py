"""The words of kernels in Python. Inside ``kernel.interpret`` they do what they say; ``translate`` makes WGSL of them."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from .._expression import is_lazy
from .._expression import math as on_arrays
from .._expression import select as select_arrays
from .types import F32, Scalar


class Invocation(Protocol):
    """One invocation that is being interpreted."""

    def ids(self, what: str, axes: int) -> tuple[int, ...]: ...
    def barrier(self) -> None: ...
    def shared(self, place: object, shape: tuple[int, ...], dtype: Scalar) -> Any: ...
    def local(self, shape: tuple[int, ...], dtype: Scalar) -> Any: ...


class _Current(threading.local):
    invocation: Invocation | None = None


current = _Current()


def _invocation(word: str) -> Invocation:
    if current.invocation is None:
        raise RuntimeError(f"vyre.{word} has a meaning only in a kernel; call the kernel, or its `interpret`")
    return current.invocation


def _position(word: str, axes: int) -> Any:
    if axes not in (1, 2, 3):
        raise ValueError(f"vyre.{word} has one to three axes, not {axes}")
    ids = _invocation(word).ids(word, axes)
    return ids[0] if axes == 1 else ids


def grid(axes: int) -> Any:
    """The position of this invocation among all: ``i = vyre.grid(1)``, ``i, j = vyre.grid(2)``. As in the indices of an array, the last
    one runs fastest."""
    return _position("grid", axes)


def static_range(*bounds: int) -> range:
    """``range`` of constants for a loop that is written out, round after round, so that its variable is a constant in each: for short loops
    around much work, and where ``if`` on the variable should cost nothing."""
    return range(*bounds)


def local_id(axes: int = 1) -> Any:
    """The position of this invocation in its workgroup."""
    return _position("local_id", axes)


def workgroup_id(axes: int = 1) -> Any:
    """The position of this invocation's workgroup among all."""
    return _position("workgroup_id", axes)


def workgroup_size(axes: int = 1) -> Any:
    """How many invocations a workgroup has, per axis."""
    return _position("workgroup_size", axes)


def num_workgroups(axes: int = 1) -> Any:
    """How many workgroups there are, per axis."""
    return _position("num_workgroups", axes)


def barrier() -> None:
    """Waits until all invocations of the workgroup are here, and sees what they have written."""
    _invocation("barrier").barrier()


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def shared(shape: int | Sequence[int], dtype: Scalar) -> Any:
    """An array that the invocations of a workgroup have in common; it starts as zeros."""
    caller = sys._getframe(1)
    return _invocation("shared").shared((caller.f_code, caller.f_lasti), _shape(shape), dtype)


def local(shape: int | Sequence[int], dtype: Scalar) -> Any:
    """An array of this invocation alone; it starts as zeros."""
    return _invocation("local").local(_shape(shape), dtype)


def _atomic(array: Any, index: Any, change: Callable[[Any], Any]) -> Any:
    _invocation("atomic operations")
    # Interpreted invocations change only at barriers, so nothing comes between these two.
    old = array[index]
    array[index] = change(old)
    return old


def atomic_add(array: Any, index: Any, value: Any) -> Any:
    """Adds to an element in one step; gives what it was. So do the others."""
    return _atomic(array, index, lambda old: _wrapped(old, int(old) + int(value)))


def atomic_sub(array: Any, index: Any, value: Any) -> Any:
    return _atomic(array, index, lambda old: _wrapped(old, int(old) - int(value)))


def atomic_min(array: Any, index: Any, value: Any) -> Any:
    return _atomic(array, index, lambda old: min(old, value))


def atomic_max(array: Any, index: Any, value: Any) -> Any:
    return _atomic(array, index, lambda old: max(old, value))


def atomic_and(array: Any, index: Any, value: Any) -> Any:
    return _atomic(array, index, lambda old: old & value)


def atomic_or(array: Any, index: Any, value: Any) -> Any:
    return _atomic(array, index, lambda old: old | value)


def atomic_xor(array: Any, index: Any, value: Any) -> Any:
    return _atomic(array, index, lambda old: old ^ value)


def atomic_exchange(array: Any, index: Any, value: Any) -> Any:
    return _atomic(array, index, lambda old: value)


def atomic_cas(array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Writes ``value`` where the element is ``expected``; gives what it was."""
    return _atomic(array, index, lambda old: value if old == expected else old)


def _wrapped(like: Any, value: int) -> Any:
    dtype = np.asarray(like).dtype
    return dtype.type(value % 2**32) if dtype.kind == "u" else dtype.type((value + 2**31) % 2**32 - 2**31)


#: Atomic operations, with the names that WGSL has for them.
ATOMICS: dict[Any, str] = {
    atomic_add: "atomicAdd",
    atomic_sub: "atomicSub",
    atomic_min: "atomicMin",
    atomic_max: "atomicMax",
    atomic_and: "atomicAnd",
    atomic_or: "atomicOr",
    atomic_xor: "atomicXor",
    atomic_exchange: "atomicExchange",
    atomic_cas: "atomicCompareExchangeWeak",
}

#: Which ids each word means, as a builtin of WGSL.
IDS: dict[Any, str] = {
    grid: "global_invocation_id",
    local_id: "local_invocation_id",
    workgroup_id: "workgroup_id",
    num_workgroups: "num_workgroups",
}


def _fract(x: Any) -> Any:
    return x - np.floor(x)


#: Functions of floats: the name here and in WGSL, how many numbers, and what computes them in ordinary Python.
_FLOAT_FUNCTIONS: dict[str, tuple[str, int, Callable[..., Any]]] = {
    "sqrt": ("sqrt", 1, np.sqrt),
    "rsqrt": ("inverseSqrt", 1, lambda x: 1 / np.sqrt(x)),
    "exp": ("exp", 1, np.exp),
    "exp2": ("exp2", 1, np.exp2),
    "log": ("log", 1, np.log),
    "log2": ("log2", 1, np.log2),
    "sin": ("sin", 1, np.sin),
    "cos": ("cos", 1, np.cos),
    "tan": ("tan", 1, np.tan),
    "asin": ("asin", 1, np.arcsin),
    "acos": ("acos", 1, np.arccos),
    "atan": ("atan", 1, np.arctan),
    "atan2": ("atan2", 2, np.arctan2),
    "sinh": ("sinh", 1, np.sinh),
    "cosh": ("cosh", 1, np.cosh),
    "tanh": ("tanh", 1, np.tanh),
    "asinh": ("asinh", 1, np.arcsinh),
    "acosh": ("acosh", 1, np.arccosh),
    "atanh": ("atanh", 1, np.arctanh),
    "floor": ("floor", 1, np.floor),
    "ceil": ("ceil", 1, np.ceil),
    "trunc": ("trunc", 1, np.trunc),
    "rint": ("round", 1, np.rint),
    "fract": ("fract", 1, _fract),
    "fma": ("fma", 3, lambda a, b, c: np.float64(a) * np.float64(b) + np.float64(c)),
    "degrees": ("degrees", 1, np.degrees),
    "radians": ("radians", 1, np.radians),
}


#: Names that expressions have for some functions.
_ON_ARRAYS = {"rsqrt": "inverse_sqrt", "rint": "round"}


def _float_function(name: str, compute: Callable[..., Any] | None = None) -> Callable[..., Any]:
    compute = compute or _FLOAT_FUNCTIONS[name][2]

    def function(*numbers: Any) -> Any:
        if any(is_lazy(number) for number in numbers):
            return on_arrays(_ON_ARRAYS.get(name, name), *numbers)
        with np.errstate(all="ignore"):
            width = np.float16 if isinstance(numbers[0], np.float16) else np.float32
            return width(compute(*(width(number) for number in numbers)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` of 32-bit floats in kernels, and of arrays."
    return function


sqrt, rsqrt, exp, exp2, log, log2 = (_float_function(name) for name in ("sqrt", "rsqrt", "exp", "exp2", "log", "log2"))
sin, cos, tan, asin, acos, atan, atan2 = (_float_function(name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2"))
sinh, cosh, tanh, asinh, acosh, atanh = (_float_function(name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
floor, ceil, trunc, rint, fract = (_float_function(name) for name in ("floor", "ceil", "trunc", "rint", "fract"))
fma, degrees, radians = (_float_function(name) for name in ("fma", "degrees", "radians"))

#: Every object that means a function of floats: the WGSL name and how many numbers it takes.
FLOAT_CALLS: dict[Any, tuple[str, int]] = {}
#: What stands for functions of ``math`` and NumPy when a kernel is interpreted, so that both compute with 32 bits.
IN_32_BITS: dict[Any, Callable[..., Any]] = {}
for _name, (_wgsl, _count, _compute) in _FLOAT_FUNCTIONS.items():
    FLOAT_CALLS[globals()[_name]] = (_wgsl, _count)
    _same = [
        getattr(
            np,
            {
                "asin": "arcsin",
                "acos": "arccos",
                "atan": "arctan",
                "atan2": "arctan2",
                "asinh": "arcsinh",
                "acosh": "arccosh",
                "atanh": "arctanh",
            }.get(_name, _name),
            None,
        )
    ]
    if _name not in ("floor", "ceil", "trunc"):  # Those of `math` give integers.
        _same.append(getattr(math, _name, None))
    for _other in filter(None, _same):
        FLOAT_CALLS[_other] = (_wgsl, _count)
        IN_32_BITS[_other] = globals()[_name]
FLOAT_CALLS[math.fabs] = ("abs", 1)
IN_32_BITS[math.fabs] = _float_function("fabs", np.abs)

#: Roundings of ``math`` and ``round``, which give integers.
ROUNDINGS: dict[Any, str] = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", round: "round"}


def clamp(value: Any, low: Any, high: Any) -> Any:
    """The nearest number between two others."""
    if any(is_lazy(number) for number in (value, low, high)):
        return on_arrays("clamp", value, low, high)
    return min(max(value, low), high)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """One of two numbers, without a branch; both are computed. On arrays, one of two for each position."""
    if is_lazy(condition):
        return select_arrays(condition, yes, no)
    return yes if condition else no


def popcount(value: Any) -> Any:
    """How many bits of an integer are ones."""
    return (
        type(value)(int(value & 0xFFFFFFFF).bit_count())
        if isinstance(value, int)
        else value.dtype.type((int(value) & 0xFFFFFFFF).bit_count())
    )


def bitcast(dtype: Scalar, value: Any) -> Any:
    """The bits of a number, read as another type."""
    source = value if isinstance(value, np.generic) else (F32 if isinstance(value, float) else Scalar("i32", "int32"))(value)
    return np.asarray(source).view(dtype.dtype)[()]


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two numbers or arrays."""
    return on_arrays("min", a, b) if is_lazy(a) or is_lazy(b) else min(a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two numbers or arrays."""
    return on_arrays("max", a, b) if is_lazy(a) or is_lazy(b) else max(a, b)
