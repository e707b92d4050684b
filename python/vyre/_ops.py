"""Ops on arrays and expressions: sums, sorts, products. What an op is given is computed inside of its kernel, and its result stays where
the work is until it is read. Names and meanings are NumPy's, but for types: sums of 32 bits stay 32 bits wide."""

from __future__ import annotations

import operator
from typing import Any

from . import _vyre
from ._expression import Expression, term_of, together
from ._expression import math as _function
from ._vyre import Array, Term


def _term(x: Any, name: str, floats: bool = False) -> Term:
    """An operand; truth values count as 1 and 0, and integers become floats where an op is of floats."""
    term = term_of(x)
    if not isinstance(term, Term):
        raise TypeError(f"`{name}` takes arrays, not {type(x).__name__}")
    if term.dtype == "bool":
        term = term.cast("uint32")
    return together([term], floats=floats)[0]


def _axis(term: Term, axis: Any) -> int | None:
    if axis is None:
        return None
    if isinstance(axis, (tuple, list)):
        raise TypeError("one axis can be given, or none; several are taken one after another")
    axes, along = len(term.shape), operator.index(axis)
    if not -axes <= along < axes:
        raise ValueError(f"there is no axis {along} among {axes}")
    return along % axes


def _kept(result: Array, term: Term, axis: int | None, keepdims: bool) -> Array:
    if not keepdims:
        return result
    return result.reshape(tuple(1 if axis is None or at == axis else extent for at, extent in enumerate(term.shape)))


def _reduce(name: str, x: Any, axis: Any, keepdims: bool, floats: bool = False) -> Array:
    term = _term(x, name, floats)
    along = _axis(term, axis)
    return _kept(_vyre.op(name, [term], axis=along)[0], term, along, keepdims)


def sum(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The sum of all elements, or of those along an axis. Integers wrap around at the width of their type."""
    return _reduce("sum", x, axis, keepdims)


def prod(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The product of the elements."""
    return _reduce("product", x, axis, keepdims)


def min(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The smallest element; NaN where there is one."""
    return _reduce("min", x, axis, keepdims)


def max(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The largest element; NaN where there is one."""
    return _reduce("max", x, axis, keepdims)


def mean(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The mean; of integers as floats."""
    return _reduce("mean", x, axis, keepdims, floats=True)


def var(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The mean square distance from the mean."""
    return _reduce("variance", x, axis, keepdims, floats=True)


def std(x: Any, axis: int | None = None, keepdims: bool = False) -> Expression:
    """The root of :func:`var`."""
    return _function("sqrt", var(x, axis, keepdims))


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position of the smallest element, the first where there are several."""
    return _reduce("argmin", x, axis, keepdims)


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position of the largest element, the first where there are several."""
    return _reduce("argmax", x, axis, keepdims)


def any(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """1 where some element is not zero, else 0."""
    return _reduce("any", x, axis, keepdims)


def all(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """1 where no element is zero, else 0."""
    return _reduce("all", x, axis, keepdims)


def _scan(name: str, x: Any, axis: Any) -> Array:
    term = _term(x, name)
    along = _axis(term, axis)
    axes = len(term.shape)
    if along is None or along == axes - 1:
        scanned = _vyre.op(name, [term], axis=along)[0]
        return scanned.reshape(-1) if along is None else scanned
    # Scans go along the last axis.
    order = list(range(axes))
    order[along], order[-1] = order[-1], order[along]
    turned = Term.array(_vyre.op("permute", [term], order=order)[0])
    sums = Term.array(_vyre.op(name, [turned], axis=axes - 1)[0])
    return _vyre.op("permute", [sums], order=order)[0]


def cumsum(x: Any, axis: int | None = None) -> Array:
    """Sums up to each element, with it; of all elements in a row where no axis is given."""
    return _scan("cumsum", x, axis)


def exclusive_sum(x: Any, axis: int | None = None) -> Array:
    """Sums of what is before each element."""
    return _scan("exclusive_sum", x, axis)


def cumprod(x: Any) -> Array:
    """Products up to each element, with it."""
    return _vyre.op("cumprod", [_term(x, "cumprod")])[0].reshape(-1)


def sort(x: Any, descending: bool = False) -> Array:
    """All elements in ascending or descending order. NaN comes last, or first where its sign bit is set."""
    return _vyre.op("sort_descending" if descending else "sort", [_term(x, "sort")])[0]


def argsort(x: Any) -> Array:
    """The positions of all elements in ascending order; those of equal ones keep their order."""
    return _vyre.op("argsort", [_term(x, "argsort")])[0]


def top_k(x: Any, count: int, axis: int | None = None) -> tuple[Array, Array]:
    """The largest elements, the largest first, and their positions: of all, or of those along an axis."""
    term = _term(x, "top_k")
    values, positions = _vyre.op("top_k", [term], count=operator.index(count), axis=_axis(term, axis))
    return values, positions


def _trimmed(found: list[Array]) -> Array:
    """The elements that count; how many they are is waited for."""
    elements, count = found
    trimmed: Array = elements[: int(count)]
    return trimmed


def unique(x: Any) -> Array:
    """The different elements in ascending order."""
    return _trimmed(_vyre.op("unique", [Term.array(sort(x))]))


def compress(mask: Any, x: Any) -> Array:
    """The elements where a mask is true, in their order."""
    where = term_of(mask)
    if not isinstance(where, Term):
        raise TypeError("the mask of `compress` is no array")
    if where.dtype != "bool":
        where = where.binary("!=", Term.scalar(0.0 if where.dtype.startswith("float") else 0, where.dtype))
    return _trimmed(_vyre.op("compact", [_term(x, "compress"), where]))


def bincount(x: Any, bins: int) -> Array:
    """How many elements are 0, 1 and so on; larger ones than there are bins are not counted."""
    return _vyre.op("histogram", [_term(x, "bincount").cast("uint32")], count=operator.index(bins))[0]


def softmax(x: Any) -> Array:
    """``exp(x) / sum(exp(x))`` along the last axis, without overflow."""
    return _vyre.op("softmax", [_term(x, "softmax", floats=True)])[0]


def log_softmax(x: Any) -> Array:
    """The logarithm of :func:`softmax`."""
    return _vyre.op("log_softmax", [_term(x, "log_softmax", floats=True)])[0]


def layer_norm(x: Any, epsilon: float = 1e-5) -> Array:
    """Rows along the last axis with mean 0 and variance 1."""
    return _vyre.op("layer_norm", [_term(x, "layer_norm", floats=True)], epsilon=float(epsilon))[0]


def rms_norm(x: Any, epsilon: float = 1e-5) -> Array:
    """Rows along the last axis with a mean square of 1."""
    return _vyre.op("rms_norm", [_term(x, "rms_norm", floats=True)], epsilon=float(epsilon))[0]


def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Array:
    """``softmax(q @ k.T / sqrt(dim)) @ v`` in one kernel; of float32 and float16. Queries are ``(..., m, dim)``, keys and values
    ``(..., n, dim)``. Causal: query ``i`` looks at the keys up to ``i`` alone."""
    terms = together([_term(x, "attention", floats=True) for x in (q, k, v)])
    return _vyre.op("attention", terms, causal=bool(causal))[0]


def fft(x: Any) -> Array:
    """The Fourier transform of complex numbers, float32 of ``(..., n, 2)``, along ``n``: a product of 2, 3, 5 and 7 of up to 4096, or
    of two or three such. NumPy has complex numbers in this form by ``x.astype(np.complex64)[..., None].view(np.float32)``."""
    return _vyre.op("fft", [_term(x, "fft")])[0]


def ifft(x: Any) -> Array:
    """The way back of :func:`fft`, divided by ``n``."""
    return _vyre.op("fft", [_term(x, "ifft")], inverse=True)[0]


def stencil(x: Any, weights: Any, boundary: str = "zero") -> Array:
    """Sums of the neighbours of each element in the last two or three axes, with weights of two or three axes whose middle is the element
    itself. Behind the edges are zeros, or what ``"edge"``, ``"wrap"`` and ``"reflect"`` of ``numpy.pad`` say."""
    term = _term(x, "stencil", floats=True)
    return _vyre.op("stencil", [term, _term(weights, "stencil", floats=True)], boundary=boundary)[0]


def convolution(x: Any, weights: Any, stride: int = 1, padding: int = 0) -> Array:
    """Windows of images, ``(n, channels, h, w)`` by weights ``(outputs, channels, kh, kw)``, or ``(h, w)`` by ``(kh, kw)``."""
    terms = together([_term(x, "convolution", floats=True), _term(weights, "convolution", floats=True)])
    return _vyre.op("convolution", terms, stride=operator.index(stride), padding=operator.index(padding))[0]


def accelerations(bodies: Any, epsilon: float = 1e-3) -> Array:
    """How bodies ``(n, 4)``, each with a place and a mass, attract each other: ``(n, 3)``."""
    return _vyre.op("accelerations", [_term(bodies, "accelerations")], epsilon=float(epsilon))[0]


def segment_cumsum(x: Any, offsets: Any) -> Array:
    """Sums up to each element along the first axis that begin anew with each segment: segment ``j`` goes from ``offsets[j]`` to
    ``offsets[j + 1]``."""
    return _vyre.op("segment_cumsum", [_term(x, "segment_cumsum"), _term(offsets, "segment_cumsum").cast("uint32")])[0]


def segment_sort(x: Any, offsets: Any, descending: bool = False) -> Array:
    """The elements of each segment in ascending or descending order: segment ``j`` goes from ``offsets[j]`` to ``offsets[j + 1]``. What is in
    no segment is zero."""
    op = "segment_sort_descending" if descending else "segment_sort"
    return _vyre.op(op, [_term(x, "segment_sort"), _term(offsets, "segment_sort").cast("uint32")])[0]


def crc32(x: Any) -> Array:
    """The CRC-32 (of zlib) of each row of uint32: a message whose bytes are in the order of memory."""
    return _vyre.op("crc32", [_term(x, "crc32")])[0]


def sha256(x: Any) -> Array:
    """The SHA-256 of each row of uint32, a message whose bytes are in the order of memory, as eight words: the first byte of a hash is the
    highest of its first word."""
    return _vyre.op("sha256", [_term(x, "sha256")])[0]


def transpose(x: Any, axes: tuple[int, ...] | None = None) -> Array:
    """The axes in another order, or in reverse."""
    term = _term(x, "transpose")
    order = [_axis(term, axis) or 0 for axis in axes] if axes is not None else list(range(len(term.shape)))[::-1]
    return _vyre.op("permute", [term], order=order)[0]


def take(x: Any, positions: Any) -> Array:
    """The elements along the first axis that positions name; zeros where there is none."""
    return _vyre.op("gather", [_term(x, "take"), _term(positions, "take").cast("uint32")])[0]


def scatter(x: Any, positions: Any, values: Any) -> Array:
    """``x`` with values written to the positions along the first axis; positions behind the end are left out."""
    first, last = together([_term(x, "scatter"), _term(values, "scatter")])
    return _vyre.op("scatter", [first, _term(positions, "scatter").cast("uint32"), last])[0]


def scatter_add(x: Any, positions: Any, values: Any) -> Array:
    """``x`` with values added at the positions along the first axis; of int32 and uint32, whose sums have no order."""
    first, last = together([_term(x, "scatter_add"), _term(values, "scatter_add")])
    return _vyre.op("scatter_add", [first, _term(positions, "scatter_add").cast("uint32"), last])[0]


def dot(a: Any, b: Any) -> Array:
    """The sum of the products of two vectors, or the product of matrices."""
    return matmul(a, b)


def matmul(a: Any, b: Any) -> Array:
    """The product of matrices and vectors, as ``a @ b``; matrices may have axes in front, which go together."""
    left, right = together([_term(a, "matmul"), _term(b, "matmul")])
    axes = (len(left.shape), len(right.shape))
    if 0 in axes:
        raise ValueError("`matmul` takes vectors and matrices; a number is multiplied with `*`")
    if left.shape[-1] != right.shape[0 if axes[1] == 1 else -2]:
        raise ValueError(f"matrices of {left.shape} and {right.shape} don't fit")
    if axes == (1, 1):
        return _vyre.op("dot", [left, right])[0]
    if axes[1] == 1:
        return _vyre.op("matvec", [left, right])[0]
    if axes[0] == 1:
        turned = Term.array(_vyre.op("transpose", [right])[0])
        return _vyre.op("matvec", [turned, left])[0]
    return _vyre.op("matmul", [left, right])[0]


def linear(a: Any, b: Any, bias: Any = None, scale: float | None = None, activation: str | None = None) -> Array:
    """``activation(scale * (a @ b) + bias)`` of matrices in one kernel, with a bias for each column; ``activation`` is ``"relu"``, ``"gelu"``
    (the form with ``tanh``) or nothing. Halves are computed in float32 and rounded once."""
    given = [a, b] if bias is None else [a, b, bias]
    terms = together([_term(value, "linear") for value in given])
    return _vyre.op("matmul" if bias is None else "linear", terms, scale=scale, activation=activation)[0]


#: What arrays and expressions have as methods: where NumPy has the same, under the same name.
METHODS = (sum, prod, min, max, mean, var, std, argmin, argmax, any, all, cumsum, cumprod, argsort, dot)


def _matmul(self: Any, other: Any) -> Any:
    return NotImplemented if term_of(other) is None else matmul(self, other)


def _rmatmul(self: Any, other: Any) -> Any:
    return NotImplemented if term_of(other) is None else matmul(other, self)


def _transposed(self: Any, *axes: Any) -> Array:
    if len(axes) == 1 and isinstance(axes[0], (tuple, list)):
        axes = tuple(axes[0])
    return transpose(self, axes or None)


def _install(kind: Any) -> None:
    for method in METHODS:
        setattr(kind, method.__name__, method)
    kind.transpose = _transposed
    kind.T = property(transpose)
    kind.__matmul__ = _matmul
    kind.__rmatmul__ = _rmatmul


_install(Array)
_install(Expression)
