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

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _vyre, errors
from ._explain import Explanation, explain
from ._expression import Expression
from ._kernels import wgsl
from ._measure import Timing, Tuned, bench, tune
from ._ops import (
    accelerations,
    all,
    any,
    argmax,
    argmin,
    argsort,
    attention,
    bincount,
    compress,
    convolution,
    crc32,
    cumprod,
    cumsum,
    dot,
    exclusive_sum,
    fft,
    ifft,
    layer_norm,
    linear,
    log_softmax,
    matmul,
    max,
    mean,
    min,
    prod,
    rms_norm,
    scatter,
    scatter_add,
    segment_cumsum,
    segment_sort,
    sha256,
    softmax,
    sort,
    std,
    stencil,
    sum,
    take,
    top_k,
    transpose,
    unique,
    var,
)
from ._packs import PackReport, export_pack, import_pack
from ._vyre import Array, Kernel, Launch, __version__, flush, metrics, synchronize, take_notices
from .errors import VyreError

__all__ = [
    "Array",
    "Device",
    "Explanation",
    "Expression",
    "Kernel",
    "Launch",
    "PackReport",
    "PythonKernel",
    "Timing",
    "Tuned",
    "VyreError",
    "__version__",
    "accelerations",
    "acos",
    "acosh",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "array",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_exchange",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "attention",
    "barrier",
    "bench",
    "bincount",
    "bitcast",
    "bool_",
    "ceil",
    "clamp",
    "compress",
    "convolution",
    "cos",
    "cosh",
    "crc32",
    "cumprod",
    "cumsum",
    "degrees",
    "devices",
    "dot",
    "empty",
    "errors",
    "exclusive_sum",
    "exp",
    "exp2",
    "explain",
    "export_pack",
    "f16",
    "f32",
    "fft",
    "floor",
    "flush",
    "fma",
    "fract",
    "function",
    "grid",
    "i32",
    "ifft",
    "import_pack",
    "kernel",
    "layer_norm",
    "linear",
    "local",
    "local_id",
    "log",
    "log2",
    "log_softmax",
    "matmul",
    "max",
    "maximum",
    "mean",
    "metrics",
    "min",
    "minimum",
    "num_workgroups",
    "popcount",
    "prod",
    "radians",
    "rint",
    "rms_norm",
    "rsqrt",
    "scatter",
    "scatter_add",
    "segment_cumsum",
    "segment_sort",
    "select",
    "sha256",
    "shared",
    "sin",
    "sinh",
    "softmax",
    "sort",
    "sqrt",
    "static_range",
    "std",
    "stencil",
    "sum",
    "synchronize",
    "take",
    "take_notices",
    "tan",
    "tanh",
    "top_k",
    "transpose",
    "trunc",
    "tune",
    "u32",
    "unique",
    "var",
    "wgsl",
    "workgroup_id",
    "workgroup_size",
    "zeros",
    "zeros_like",
]


# The words of kernels in Python come with NumPy, whose import takes longer than all else here, so they wait for their first use.
_KERNEL = ("PythonKernel", "function", "kernel")
_TYPES = {"bool_": "BOOL", "f16": "F16", "f32": "F32", "i32": "I32", "u32": "U32"}

if TYPE_CHECKING:
    from ._python.kernel import PythonKernel, function, kernel
    from ._python.language import (
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        atomic_add,
        atomic_and,
        atomic_cas,
        atomic_exchange,
        atomic_max,
        atomic_min,
        atomic_or,
        atomic_sub,
        atomic_xor,
        barrier,
        bitcast,
        ceil,
        clamp,
        cos,
        cosh,
        degrees,
        exp,
        exp2,
        floor,
        fma,
        fract,
        grid,
        local,
        local_id,
        log,
        log2,
        maximum,
        minimum,
        num_workgroups,
        popcount,
        radians,
        rint,
        rsqrt,
        select,
        shared,
        sin,
        sinh,
        sqrt,
        static_range,
        tan,
        tanh,
        trunc,
        workgroup_id,
        workgroup_size,
    )
    from ._python.types import BOOL as bool_
    from ._python.types import F16 as f16
    from ._python.types import F32 as f32
    from ._python.types import I32 as i32
    from ._python.types import U32 as u32


def __getattr__(name: str) -> Any:
    found: Any
    if name in _KERNEL:
        from ._python import kernel as words

        found = getattr(words, name)
    elif name in _TYPES:
        from ._python import types

        found = getattr(types, _TYPES[name])
    elif name in __all__:
        from ._python import language

        found = getattr(language, name)
    elif name in ("bf16", "bfloat16"):
        raise AttributeError(
            "kernels compute with 32 bits and have no bfloat16: take vyre.f32 and convert arrays, x.astype('float32'); vyre.matmul and "
            "vyre.attention take arrays of bfloat16 as they are"
        )
    else:
        raise AttributeError(f"module 'vyre' has no attribute {name!r}")
    globals()[name] = found
    return found


class Device(NamedTuple):
    """A device of this machine; ``absent`` says why where it can't be used."""

    id: str
    name: str
    absent: str | None


def devices() -> list[Device]:
    """Every device that this build knows: those that are here, and why the others are not."""
    return [Device(*device) for device in _vyre.devices()]


def array(values: Any, dtype: Any = None) -> Array:
    """An array with a copy of these values: a NumPy array, a list, an expression, or anything with DLPack."""
    if isinstance(values, Expression) and (dtype is None or values.dtype == dtype):
        # Its value stays where it is computed.
        return values.eval().copy()
    if isinstance(values, Array) and (dtype is None or values.dtype == dtype):
        return values.copy()
    if isinstance(dtype, str) and dtype == "bfloat16":
        # NumPy knows the name from there.
        try:
            dtype = importlib.import_module("ml_dtypes").bfloat16
        except ImportError:
            raise TypeError("NumPy has no bfloat16 of its own; install ml_dtypes, or pass a tensor of torch or JAX") from None
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
