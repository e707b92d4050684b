"""Calls in kernels: ids, barriers, atomics, memory, conversions, mathematics, and the user's own functions."""

from __future__ import annotations

import ast
import inspect
import math
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from . import language
from .source import Problem, Unsupported
from .types import BOOL, F16, F32, I32, U32, scalar_of
from .values import Array, Value, as_type, binary, convert, settled, together, truth

if TYPE_CHECKING:
    from .expressions import Expressions

_MOST_SHARED = 16 * 1024

_SUGGESTIONS: dict[Any, str] = {
    print: "Write numbers into an array, and print them after the call; `kernel.interpret` prints as it goes.",
    sum: "Write a `for` loop.",
    enumerate: "Loop over `range(a.size)`.",
    zip: "Loop over `range(a.size)`.",
    reversed: "Loop over `range(n - 1, -1, -1)`.",
    any: "Write a `for` loop.",
    all: "Write a `for` loop.",
    sorted: "Write the sort as loops.",
    divmod: "Write `a // b` and `a % b`.",
    isinstance: "Types are known before the kernel runs.",
    np.zeros: "Use `vyre.local((n,), vyre.f32)`.",
    np.empty: "Use `vyre.local((n,), vyre.f32)`.",
    math.gcd: "Write it as a loop.",
    math.factorial: "Write it as a loop.",
}


def call_value(at: Expressions, node: ast.Call) -> Value:
    """A call whose result is used."""
    found = at.resolve_or_none(node.func)
    if found is None:
        raise Problem(f"`{ast.unparse(node.func)}` is not known here", "Call functions by the names that the file has for them.", node.func)
    try:
        hash(found)
    except TypeError:
        raise Unsupported(f"a call of this {type(found).__name__}", "Call functions.", node.func) from None
    kind = scalar_of(found)
    if kind is not None:
        (value,) = _numbers(at, node, 1, kind.name)
        if kind is F16:
            at.unit.uses_f16 = True
        return convert(value, kind)
    if found in (*language.IDS, language.workgroup_size):
        positions = ids(at, found, node)
        if len(positions) != 1:
            raise Unsupported("ids of several axes as one number", "Unpack them: `i, j = vyre.grid(2)`.", node)
        return positions[0]
    if found in language.ATOMICS:
        return _atomic(at, language.ATOMICS[found], node)
    if found in language.FLOAT_CALLS:
        name, count = language.FLOAT_CALLS[found]
        return _floats(at, name, _numbers(at, node, count, name))
    if found in language.ROUNDINGS:
        if found is round and len(node.args) == 2:
            raise Unsupported("rounding to digits", "Write `vyre.rint(x * 100.0) / 100.0`.", node)
        (value,) = _numbers(at, node, 1, "it")
        if value.type is not None and value.type.is_integer or isinstance(value.constant, int):
            return value
        rounded = _floats(at, language.ROUNDINGS[found], [value])
        return Value(f"i32({rounded.text})", I32, pure=rounded.pure)
    special = _SPECIAL.get(found)
    if special is not None:
        result: Value = special(at, node)
        return result
    if found in (language.barrier, language.shared, language.local):
        raise Problem(f"`vyre.{found.__name__}` here", "Write it on a line of its own.", node)
    return _user_function(at, found, node)


def call_text(at: Expressions, node: ast.Call) -> str:
    """A call as a statement."""
    found = at.resolve_or_none(node.func)
    if found is language.barrier:
        if node.args or node.keywords:
            raise Problem("`vyre.barrier` takes nothing", "Write `vyre.barrier()`.", node)
        at.unit.uses_barrier = True
        at.changes = True
        return "workgroupBarrier(); storageBarrier()" if at.unit.exchanges else "workgroupBarrier()"
    value = call_value(at, node)
    if value.pure and found not in language.ATOMICS:
        raise Problem("what this computes is not used", "Assign it, or leave it out.", node)
    return value.text.removesuffix(".old_value")


def ids(at: Expressions, found: Any, node: ast.Call) -> list[Value]:
    """The ids that a word means, in the order of an array's indices."""
    if not at.is_kernel:
        raise Unsupported(f"`vyre.{found.__name__}` in a function that a kernel calls", "Ask for it in the kernel, and pass it.", node)
    axes = at.value(node.args[0]).constant if len(node.args) == 1 else 1 if not node.args and found is not language.grid else None
    if node.keywords or axes not in (1, 2, 3):
        raise Problem(f"`vyre.{found.__name__}` takes the number of axes: 1, 2 or 3", f"Write `vyre.{found.__name__}(1)`.", node)
    assert isinstance(axes, int)
    at.unit.axes = max(at.unit.axes, axes)
    if found is language.workgroup_size:
        size = at.unit.workgroup
        if size is None:
            fix = "Write `@vyre.kernel(workgroup=(256,))`."
            raise Problem("the size of the workgroup is not fixed", fix, node)
        padded = (1,) * (axes - len(size)) + size
        return [Value("", None, extent, natural=True) for extent in padded[-axes:]]
    name = language.IDS[found]
    at.unit.ids.add(name)
    return [Value(f"i32(vy_{name}.{'xyz'[axes - 1 - axis]})", I32, natural=True) for axis in range(axes)]


def array_made(at: Expressions, node: ast.Call, name: str) -> Array | None:
    """Workgroup or private memory, where a call makes some."""
    found = at.resolve_or_none(node.func)
    if found not in (language.shared, language.local):
        return None
    word = f"vyre.{found.__name__}"
    if len(node.args) != 2 or node.keywords:
        raise Problem(f"`{word}` takes a shape and a type", f"Write `{word}((16, 16), vyre.f32)`.", node)
    kind = scalar_of(at.resolve_or_none(node.args[1]))
    if kind is None:
        raise Problem("this is no type of kernels", "Write vyre.f32, vyre.i32 or vyre.u32.", node.args[1])
    parts = list(node.args[0].elts) if isinstance(node.args[0], ast.Tuple) else [node.args[0]]
    extents = []
    for part in parts:
        extent = at.value(part).constant
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
            raise Problem("the shape of this memory is no constant", "Use whole numbers that are known before the kernel runs.", part)
        extents.append(extent)
    count = math.prod(extents)
    if count > _MOST_SHARED:
        raise Problem(f"{count} elements are more than a workgroup or an invocation has room for", f"Use at most {_MOST_SHARED}.", node)
    if found is language.local:
        return Array(f"vy_{name}", kind, tuple(extents), "local")
    shared = at.unit.unique(name)
    at.unit.shared.append((shared, kind, count, at.source, node))
    return Array(shared, kind, tuple(extents), "shared")


def _numbers(at: Expressions, node: ast.Call, count: int, name: str) -> list[Value]:
    if node.keywords or len(node.args) != count:
        raise Problem(f"`{ast.unparse(node.func)}` takes {count} numbers, and {len(node.args) + len(node.keywords)} are here",
                      "Pass as many, without names.", node)  # fmt: skip
    return [at.value(part) for part in node.args]


def _floats(at: Expressions, name: str, values: list[Value]) -> Value:
    kind = F16 if any(v.type is F16 for v in values) and not any(v.type is F32 for v in values) else F32
    if any(value.type is BOOL for value in values):
        raise Problem(f"`{name}` of a bool", "Write `vyre.f32(flag)`.")
    inner = ", ".join(convert(value, kind).text if value.type is not kind else value.text for value in values)
    return Value(f"{name}({inner})", kind, pure=all(value.pure for value in values))


def _atomic(at: Expressions, name: str, node: ast.Call) -> Value:
    count = 4 if name == "atomicCompareExchangeWeak" else 3
    if node.keywords or len(node.args) != count:
        raise Problem(f"`{ast.unparse(node.func)}` takes {count} arguments", "Pass the array, the index, and the number.", node)
    array = at.array_or_none(node.args[0])
    if array is None:
        raise Problem("this is no array", "Pass an array, its index, and the number: `vyre.atomic_add(a, i, 1)`.", node.args[0])
    if not array.element.is_integer:
        raise Unsupported(f"an atomic operation on {array.element.name}", "Atomics work on i32 and u32; scale floats to integers.", node)
    if array.kind in ("local", "pointer"):
        raise Problem("memory of one invocation needs no atomics", "Write `a[i] += v`.", node)
    place = ast.copy_location(ast.Subscript(node.args[0], node.args[1], ast.Load()), node)
    _, index = at.place(place)
    at.unit.found_atomic.add(array.parameter or array.name)
    if array.kind == "buffer":
        at.unit.read.add(array.parameter)
    at.changed(array)
    numbers = [as_type(at.value(part), array.element, "the array") for part in node.args[2:]]
    text = f"{name}(&{array.name}[{index}], {', '.join(number.text for number in numbers)})"
    if count == 4:
        text += ".old_value"
    return Value(text, array.element, natural=array.element is U32, pure=False)


def _user_function(at: Expressions, found: Any, node: ast.Call) -> Value:
    from .translate import translate_helper

    function = getattr(found, "__wrapped__", found)
    if not isinstance(function, types.FunctionType):
        fix = "Kernels know `math`, some of NumPy, the words of vyre, and functions of Python."
        try:
            fix = _SUGGESTIONS.get(found, fix)
        except TypeError:
            pass
        raise Unsupported(f"`{ast.unparse(node.func)}`", fix, node.func)
    positional: list[Array | Value] = []
    for part in node.args:
        positional.append(at.array_or_none(part) or settled(at.value(part)))
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise Unsupported("`**`", "Name every argument.", keyword.value)
        named[keyword.arg] = at.array_or_none(keyword.value) or settled(at.value(keyword.value))
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        raise Problem(f"`{function.__name__}`: {error}", "Pass what the function takes.", node) from None
    bound.apply_defaults()
    annotations = inspect.get_annotations(function)
    texts = []
    for name, argument in bound.arguments.items():
        if not isinstance(argument, (Array, Value)):
            value = at.captured(argument, f"the default of `{name}`", node)
            bound.arguments[name] = argument = settled(value)
        if isinstance(argument, Array):
            if argument.kind in ("local", "pointer"):
                texts.append(argument.name if argument.kind == "pointer" else f"&{argument.name}")
            continue
        annotation = annotations.get(name)
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, function.__globals__)
            except NameError:
                annotation = None
        wanted = scalar_of(annotation)
        if wanted is not None and wanted is not argument.type:
            bound.arguments[name] = argument = as_type(argument, wanted, f"`{name}`")
        texts.append(argument.text)
    wgsl, returns, changes = translate_helper(at.unit, function, bound)
    at.changes = at.changes or changes
    pure = not changes and all(argument.pure for argument in bound.arguments.values() if isinstance(argument, Value))
    if returns is None:
        return Value(f"{wgsl}({', '.join(texts)})", None, pure=False)
    return Value(f"{wgsl}({', '.join(texts)})", returns, natural=returns is U32, pure=pure)


def _many(name: str) -> Any:
    def of(at: Expressions, node: ast.Call) -> Value:
        if node.keywords or len(node.args) < 2:
            raise Unsupported(f"`{name}` of this", f"Write `{name}(a, b)`; for the elements of an array, write a loop.", node)
        values = [at.value(part) for part in node.args]
        found = values[0]
        for value in values[1:]:
            if found.constant is not None and value.constant is not None and found.type is None and value.type is None:
                best = min(found.constant, value.constant) if name == "min" else max(found.constant, value.constant)
                found = Value("", None, best, natural=isinstance(best, int) and best >= 0)
                continue
            a, b, kind = together(found, value, name)
            natural = a.natural and b.natural if name == "min" else a.natural or b.natural
            found = Value(f"{name}({a.text}, {b.text})", kind, natural=natural and kind.is_integer, pure=a.pure and b.pure)
        return found

    return of


def _abs(at: Expressions, node: ast.Call) -> Value:
    (value,) = _numbers(at, node, 1, "abs")
    if value.constant is not None and value.type is None:
        return Value("", None, abs(value.constant), natural=True)
    if value.type is BOOL:
        raise Problem("`abs` of a bool", "Write `vyre.i32(flag)`.", node)
    if value.type is U32:
        return value
    return Value(f"abs({value.text})", value.type, natural=value.type is I32, pure=value.pure)


def _length(at: Expressions, node: ast.Call) -> Value:
    array = at.array_or_none(node.args[0]) if len(node.args) == 1 else None
    if array is None:
        raise Problem("`len` of something that is no array", "Pass an array.", node)
    return at.extent(array, ast.copy_location(ast.Constant(0), node))


def _pow(at: Expressions, node: ast.Call) -> Value:
    a, b = _numbers(at, node, 2, "pow")
    if a.constant is not None and b.constant is not None and a.type is None and b.type is None:
        return Value("", None, float(math.pow(a.constant, b.constant)))
    return binary(ast.Pow(), convert(a, F32), b, at.unit.helpers)


def _log10(at: Expressions, node: ast.Call) -> Value:
    inner = _floats(at, "log2", _numbers(at, node, 1, "log10"))
    return Value(f"({inner.text} * 0.30102999566398120f)", inner.type, pure=inner.pure)


def _hypot(at: Expressions, node: ast.Call) -> Value:
    a, b = (convert(value, F32) for value in _numbers(at, node, 2, "hypot"))
    return Value(f"length(vec2<f32>({a.text}, {b.text}))", F32, pure=a.pure and b.pure)


def _clamp(at: Expressions, node: ast.Call) -> Value:
    value, low, high = _numbers(at, node, 3, "clamp")
    value, low, kind = together(settled(value), low, "clamp")
    value, high, kind = together(value, high, "clamp")
    low = as_type(low, kind, "the others") if low.type is not kind else low
    return Value(f"min(max({value.text}, {low.text}), {high.text})", kind, natural=low.natural, pure=value.pure and low.pure and high.pure)


def _select(at: Expressions, node: ast.Call) -> Value:
    condition, yes, no = _numbers(at, node, 3, "select")
    return at.selected(truth(condition), yes, no)


def _popcount(at: Expressions, node: ast.Call) -> Value:
    value = settled(_numbers(at, node, 1, "popcount")[0])
    if value.type is None or not value.type.is_integer:
        raise Problem("`popcount` of a float", "It counts bits of integers.", node)
    return Value(f"countOneBits({value.text})", value.type, natural=True, pure=value.pure)


def _bitcast(at: Expressions, node: ast.Call) -> Value:
    if len(node.args) != 2 or node.keywords:
        raise Problem("`vyre.bitcast` takes a type and a number", "Write `vyre.bitcast(vyre.u32, x)`.", node)
    kind = scalar_of(at.resolve_or_none(node.args[0]))
    value = settled(at.value(node.args[1]))
    if kind not in (F32, I32, U32) or value.type not in (F32, I32, U32):
        raise Problem("only f32, i32 and u32 can be read as each other", "Write `vyre.bitcast(vyre.u32, x)`.", node)
    assert kind is not None
    return Value(f"bitcast<{kind.name}>({value.text})", kind, natural=kind is U32, pure=value.pure)


def _test_bits(test: str) -> Any:
    def of(at: Expressions, node: ast.Call) -> Value:
        value = convert(_numbers(at, node, 1, "it")[0], F32)
        # By its bits, since compilers may take it that floats are neither infinite nor NaN.
        return Value(f"((bitcast<u32>({value.text}) & 0x7fffffffu) {test} 0x7f800000u)", BOOL, pure=value.pure)

    return of


_SPECIAL: dict[Any, Any] = {
    min: _many("min"),
    max: _many("max"),
    np.minimum: _many("min"),
    np.maximum: _many("max"),
    abs: _abs,
    np.abs: _abs,
    len: _length,
    pow: _pow,
    math.pow: _pow,
    math.log10: _log10,
    np.log10: _log10,
    math.hypot: _hypot,
    np.hypot: _hypot,
    math.isnan: _test_bits(">"),
    np.isnan: _test_bits(">"),
    math.isinf: _test_bits("=="),
    np.isinf: _test_bits("=="),
    math.isfinite: _test_bits("<"),
    np.isfinite: _test_bits("<"),
    language.clamp: _clamp,
    language.select: _select,
    language.popcount: _popcount,
    language.bitcast: _bitcast,
}
