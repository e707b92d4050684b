"""Compute kernels that run on whatever is fastest here: the processor, Vulkan, Metal, DX12 or CUDA.

>>> import numpy, vyre
>>> square = vyre.wgsl('''
... @group(0) @binding(0) var<storage, read> a: array<f32>;
... @group(0) @binding(1) var<storage, read_write> out: array<f32>;
... @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
...     if id.x < arrayLength(&a) { out[id.x] = a[id.x] * a[id.x]; }
... }''')
>>> x = vyre.array(numpy.arange(4, dtype=numpy.float32))
>>> square(square(x)).tolist()
[0.0, 1.0, 16.0, 81.0]
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _vyre, errors
from ._explain import Explanation, explain
from ._kernels import wgsl
from ._vyre import Array, Kernel, Launch, __version__, flush, synchronize, take_notices
from .errors import VyreError

__all__ = [
    "Array",
    "Device",
    "Explanation",
    "Kernel",
    "Launch",
    "VyreError",
    "__version__",
    "array",
    "devices",
    "empty",
    "errors",
    "explain",
    "flush",
    "synchronize",
    "take_notices",
    "wgsl",
    "zeros",
    "zeros_like",
]


class Device(NamedTuple):
    """A device of this machine; ``absent`` says why where it can't be used."""

    id: str
    name: str
    absent: str | None


def devices() -> list[Device]:
    """Every device that this build knows: those that are here, and why the others are not."""
    return [Device(*device) for device in _vyre.devices()]


def array(values: Any, dtype: Any = None) -> Array:
    """An array with a copy of these values: a NumPy array, a list, or anything with DLPack."""
    if isinstance(values, Array):
        return values.copy()
    if dtype is not None or not (hasattr(values, "__dlpack__") or hasattr(values, "__buffer__")):
        import numpy

        given = values
        values = numpy.asarray(given, dtype)
        # Python's own numbers have no width; kernels compute with 32 bits.
        if dtype is None and isinstance(given, (list, tuple, int, float)):
            narrow = {"f": numpy.float32, "i": numpy.int32}.get(values.dtype.kind)
            if narrow is not None:
                values = values.astype(narrow)
    return _vyre.from_host(values)


def _shape(shape: int | tuple[int, ...]) -> list[int]:
    return [shape] if isinstance(shape, int) else list(shape)


def zeros(shape: int | tuple[int, ...], dtype: Any = "float32") -> Array:
    """An array of zeros, which take no memory until they are used."""
    return _vyre.zeros(_shape(shape), dtype)


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> Array:
    """An array whose contents do not matter; here it holds zeros."""
    return zeros(shape, dtype)


def zeros_like(like: Array) -> Array:
    """Zeros in the shape and type of another array."""
    return _vyre.zeros(list(like.shape), like.dtype)
