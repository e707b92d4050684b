"""Values of kernels while they are translated: their types, and Python's operators on them as WGSL."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .source import Problem, Unsupported
from .types import BOOL, F16, F32, I32, U32, Scalar, scalar_of


@dataclass(frozen=True)
class Value:
    """A number. One that was computed before the kernel runs has its ``constant``; one of Python's own (``2``, ``0.5``) has no type yet
    and takes that of what it meets."""

    text: str
    type: Scalar | None = None
    constant: int | float | bool | None = None
    #: An integer that is never negative, as far as 32 bits reach.
    natural: bool = False
    #: And how small such an integer can be.
    least: int = 0
    #: Computing it twice, or needlessly, changes nothing.
    pure: bool = True
    #: The same number as a u32, where there is one that nothing changes.
    unsigned: str = ""

    @property
    def shown(self) -> str:
        if self.type is not None:
            return self.type.name
        return "a float" if isinstance(self.constant, float) else "an int"


@dataclass(frozen=True)
class Array:
    """An array that a name stands for: a buffer, workgroup memory, or private memory."""

    name: str
    element: Scalar
    #: Extents, as numbers or as texts of WGSL.
    extents: tuple[str | int, ...]
    kind: str  # "buffer", "shared", "local", or "pointer" to a local one
    parameter: str = ""


#: Functions that stand before a kernel that needs them.
HELPERS = {
    "vy_floordiv": "fn vy_floordiv(a: i32, b: i32) -> i32 { let q = a / b; "
    "return select(q, q - 1i, (a % b != 0i) && ((a < 0i) != (b < 0i))); }",
    "vy_mod": "fn vy_mod(a: i32, b: i32) -> i32 { let r = a % b; return select(r, r + b, (r != 0i) && ((r < 0i) != (b < 0i))); }",
    "vy_fmod": "fn vy_fmod(a: f32, b: f32) -> f32 { let r = a % b; return select(r, r + b, (r != 0.0f) && ((r < 0.0f) != (b < 0.0f))); }",
    # WGSL leaves powers of negative numbers open; Python has them where the exponent is whole.
    "vy_pow": "fn vy_pow(a: f32, b: f32) -> f32 { if (a < 0.0f && floor(b) == b) { let p = pow(-a, b); "
    "return select(p, -p, fract(b * 0.5f) != 0.0f); } if (b == 0.0f) { return 1.0f; } return pow(a, b); }",
}


def python_constant(value: Any) -> Value | None:
    """A number of Python or NumPy that is known now."""
    if isinstance(value, (bool, np.bool_)):
        return Value("true" if value else "false", BOOL, bool(value))
    if isinstance(value, np.generic):
        kind = scalar_of(type(value))
        return None if kind is None else typed_constant(kind, value.item())
    if isinstance(value, (int, float)):
        natural = isinstance(value, int) and value >= 0
        return Value("", None, value, natural=natural, least=int(value) if natural else 0)
    return None


def typed_constant(kind: Scalar, value: int | float | bool) -> Value:
    natural = kind.is_integer and value >= 0
    return Value(literal(kind, value), kind, value, natural=natural, least=int(value) if natural else 0)


def literal(kind: Scalar, value: int | float | bool) -> str:
    """A number as WGSL writes it."""
    if kind is BOOL:
        return "true" if value else "false"
    if kind.is_integer:
        low, high = (0, 2**32 - 1) if kind is U32 else (-(2**31), 2**31 - 1)
        if not low <= value <= high:
            raise Problem(f"{value} is no {kind.name}", f"Numbers from {low} to {high} are.")
        return f"{value}u" if kind is U32 else f"{value}i" if value >= 0 else f"i32({value})"
    if kind is F16:
        return f"f16({literal(F32, value)})"
    if math.isnan(value) or math.isinf(value):
        bits = "0x7fc00000u" if math.isnan(value) else "0x7f800000u" if value > 0 else "0xff800000u"
        return f"bitcast<f32>({bits})"
    with np.errstate(over="ignore"):
        narrow = float(np.float32(value))
    if math.isinf(narrow):
        raise Problem(f"{value!r} is too large for 32 bits", "Floats of kernels reach 3.4e38.")
    text = repr(float(value)) if narrow != 0 or value == 0 else "0.0"
    return f"{text}f" if math.copysign(1, value) > 0 else f"({text}f)"


def as_type(value: Value, kind: Scalar, what: str) -> Value:
    """The value where one of this type is needed. Python's own numbers adapt, and integers become floats; nothing else changes type
    unasked."""
    if value.type is kind:
        return value
    if value.constant is not None and value.type is None:
        if kind is BOOL or (kind.is_integer and isinstance(value.constant, float)):
            raise Problem(f"{what} is {kind.name}, and {value.constant!r} is not", f"Convert it: `vyre.{kind.name}(…)`.")
        return replace(typed_constant(kind, value.constant), natural=value.natural)
    if value.type is not None and value.type.is_integer and kind.is_float:
        return convert(value, kind)
    raise Problem(f"{what} is {kind.name}, and this is {value.shown}", f"Convert it: `vyre.{kind.name}(…)`.")


def settled(value: Value) -> Value:
    """The value with a type: an int of Python is an i32, a float an f32."""
    if value.type is not None:
        return value
    return as_type(value, F32 if isinstance(value.constant, float) else I32, "it")


def convert(value: Value, kind: Scalar) -> Value:
    """The value converted as was asked."""
    if value.constant is not None:
        given = value.constant
        if kind is BOOL:
            return typed_constant(BOOL, bool(given))
        return typed_constant(kind, kind(given).item() if kind.is_integer else float(given))
    if kind is BOOL:
        return truth(value)
    if value.type is kind:
        return value
    return Value(f"{kind.name}({value.text})", kind, natural=kind.is_integer and (value.natural or kind is U32), pure=value.pure)


def truth(value: Value) -> Value:
    """The value as a condition: numbers are true where they are not zero."""
    if value.constant is not None:
        return typed_constant(BOOL, bool(value.constant))
    if value.type is BOOL:
        return value
    assert value.type is not None
    return Value(f"({value.text} != {literal(value.type, 0)})", BOOL, pure=value.pure)


def together(a: Value, b: Value, sign: str) -> tuple[Value, Value, Scalar]:
    """Two numbers in the type that they have in common. At least one has a type."""
    if BOOL in (a.type, b.type):
        raise Problem(f"`{sign}` has a bool on one side", "Write `vyre.i32(flag)`, or `vyre.select(flag, a, b)`.")
    if a.type is None or b.type is None:
        typed, other = (b, a) if a.type is None else (a, b)
        assert typed.type is not None
        kind = F32 if isinstance(other.constant, float) and typed.type.is_integer else typed.type
    elif a.type is b.type:
        kind = a.type
    elif a.type.is_integer and b.type.is_integer:
        raise Problem(
            f"`{sign}` has an {a.type.name} on one side and a {b.type.name} on the other",
            f"Convert one of them: `vyre.{a.type.name}(…)` or `vyre.{b.type.name}(…)`.",
        )
    else:
        kind = F32 if F32 in (a.type, b.type) else F16
    assert kind is not None
    return as_type(a, kind, "the other side"), as_type(b, kind, "the other side"), kind


_FOLD: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
}  # fmt: skip


def binary(op: ast.operator, a: Value, b: Value, needs: set[str]) -> Value:
    """Python's operator on two numbers. ``needs`` takes the names of helpers that the text calls."""
    kind = type(op)
    sign = _SIGNS[kind]
    pure = a.pure and b.pure
    if kind is ast.MatMult:
        raise Unsupported("`@`", "Write the product as a loop over the inner index.")
    if a.constant is not None and b.constant is not None and a.type in (None, BOOL) and b.type in (None, BOOL):
        return _folded(kind, sign, a.constant, b.constant)
    if kind in (ast.LShift, ast.RShift):
        return _shifted(sign, a, b, pure)
    if kind in (ast.BitAnd, ast.BitOr, ast.BitXor):
        if a.type is BOOL and b.type is BOOL:
            return Value(f"({a.text} {'!=' if sign == '^' else sign} {b.text})", BOOL, pure=pure)
        a, b, common = together(a, b, sign)
        _integers(common, sign)
        natural = a.natural and b.natural if sign != "&" else a.natural or b.natural
        return Value(f"({a.text} {sign} {b.text})", common, natural=natural, pure=pure)
    if kind is ast.Pow:
        return _power(a, b, needs)
    if kind is ast.Div:
        a, b = (convert(side, F32) if side.type is None or side.type.is_integer else side for side in (a, b))
    a, b, common = together(a, b, sign)
    natural = common is U32 or (common is I32 and a.natural and b.natural)
    if kind is ast.FloorDiv:
        if common.is_float:
            return Value(f"floor({a.text} / {b.text})", common, pure=pure)
        if not natural:
            needs.add("vy_floordiv")
            return Value(f"vy_floordiv({a.text}, {b.text})", I32, pure=pure)
        sign = "/"
    elif kind is ast.Mod and not natural:
        if common is F16:
            raise Unsupported("`%` of 16-bit floats", "Convert them: `vyre.f32(x) % y`.")
        helper = "vy_mod" if common is I32 else "vy_fmod"
        needs.add(helper)
        return Value(f"{helper}({a.text}, {b.text})", common, natural=common is I32 and b.natural, pure=pure)
    least = 0
    if kind is ast.Sub:
        smaller = a.natural and isinstance(b.constant, int) and 0 <= b.constant <= a.least
        natural = common is U32 or smaller
        least = a.least - int(b.constant or 0) if smaller and common is I32 else 0
    elif kind is ast.Add and natural:
        least = a.least + b.least
    elif kind is ast.Mult and natural:
        least = a.least * b.least
    return Value(f"({a.text} {sign} {b.text})", common, natural=natural and common.is_integer, least=least, pure=pure)


def _integers(kind: Scalar, sign: str) -> None:
    if not kind.is_integer:
        raise Problem(f"`{sign}` works on integers, and these are {kind.name}", "Convert them: `vyre.i32(…)` or `vyre.u32(…)`.")


def _folded(kind: type[ast.operator], sign: str, a: Any, b: Any) -> Value:
    if kind is ast.Pow and isinstance(b, int) and abs(b) > 1024 or kind is ast.LShift and b > 1024:
        raise Problem(f"{a} {sign} {b} is too large", "Kernels compute with 32 bits.")
    try:
        found = python_constant(_FOLD[kind](a, b))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise Problem(f"{a!r} {sign} {b!r}: {error}", "Correct the numbers.") from None
    if found is None:
        raise Problem(f"{a!r} {sign} {b!r} is no number that kernels have", "Correct the numbers.")
    return found


def _shifted(sign: str, a: Value, b: Value, pure: bool) -> Value:
    a = settled(a)
    assert a.type is not None
    _integers(a.type, sign)
    if b.constant is not None and not (isinstance(b.constant, int) and 0 <= b.constant < 32):
        raise Problem(f"a shift by {b.constant}", "Shift by 0 to 31 bits.")
    if b.constant is None and (b.type is None or not b.type.is_integer):
        raise Problem(f"a shift by {b.shown}", "Shift by an integer.")
    count = literal(U32, b.constant) if b.constant is not None else b.text if b.type is U32 else f"u32({b.text})"
    return Value(f"({a.text} {sign} {count})", a.type, natural=a.type is U32 or (sign == ">>" and a.natural), pure=pure)


def _power(a: Value, b: Value, needs: set[str]) -> Value:
    """Whole constant exponents multiply, so that integers stay exact; others are powers of floats."""
    if isinstance(b.constant, int) and not isinstance(b.constant, bool) and b.type is not U32 and abs(b.constant) <= 64:
        a = settled(a)
        exponent = abs(b.constant)
        if not a.pure or len(a.text) * exponent > 4000:
            raise Problem("the base of `**` is no simple expression", "Assign it to a variable first.")
        if b.constant < 0:
            a = convert(a, F32) if a.type is not F16 else a
        assert a.type is not None
        one = literal(a.type, 1)
        text, square = "", a.text
        while exponent:
            if exponent & 1:
                text = f"({text} * {square})" if text else square
            exponent >>= 1
            square = f"({square} * {square})"
        text = text or one
        return Value(f"({one} / {text})" if b.constant < 0 else text, a.type, natural=a.natural and b.constant >= 0)
    if a.type in (None, I32, U32) and b.type in (I32, U32) and not isinstance(a.constant, float):
        raise Unsupported("a power of integers whose exponent is not constant", "Write a loop, or convert: `vyre.f32(a) ** b`.")
    a, b = convert(a, F32), convert(b, F32)
    needs.add("vy_pow")
    return Value(f"vy_pow({a.text}, {b.text})", F32, pure=a.pure and b.pure)


def unary(op: ast.unaryop, a: Value) -> Value:
    if isinstance(op, ast.Not):
        a = truth(a)
        return typed_constant(BOOL, not a.constant) if a.constant is not None else Value(f"!({a.text})", BOOL, pure=a.pure)
    if a.type is BOOL:
        raise Problem("this is a bool", "Write `vyre.i32(flag)`.")
    if isinstance(op, ast.UAdd):
        return a
    if a.constant is not None and a.type is None:
        return _negated(op, a)
    assert a.type is not None
    if isinstance(op, ast.Invert):
        _integers(a.type, "~")
        return Value(f"(~{a.text})", a.type, natural=a.type is U32, pure=a.pure)
    if a.type is U32:
        raise Problem("`-` of a u32, which has no negative numbers", "Convert it first: `-vyre.i32(x)`.")
    return Value(f"(-{a.text})", a.type, pure=a.pure)


def _negated(op: ast.unaryop, a: Value) -> Value:
    assert a.constant is not None
    if isinstance(op, ast.Invert):
        if isinstance(a.constant, float):
            raise Problem("`~` of a float", "`~` works on integers.")
        found = python_constant(~a.constant)
    else:
        found = python_constant(-a.constant)
    assert found is not None
    return found


_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", ">"), ast.LtE: ("<=", ">="), ast.Gt: (">", "<"), ast.GtE: (">=", "<="), ast.Eq: ("==", "=="), ast.NotEq: ("!=", "!="),
}  # fmt: skip
_FOLD_COMPARISON: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def compare(op: ast.cmpop, a: Value, b: Value) -> Value:
    if type(op) not in _COMPARISONS:
        names = {ast.Is: "`is`", ast.IsNot: "`is not`", ast.In: "`in`", ast.NotIn: "`not in`"}
        raise Unsupported(names.get(type(op), "this comparison"), "Compare numbers with == != < <= > >=.")
    sign, mirrored = _COMPARISONS[type(op)]
    pure = a.pure and b.pure
    if a.constant is not None and b.constant is not None:
        return typed_constant(BOOL, _FOLD_COMPARISON[sign](a.constant, b.constant))
    if a.type is BOOL and b.type is BOOL and sign in ("==", "!="):
        return Value(f"({a.text} {sign} {b.text})", BOOL, pure=pure)
    if {a.type, b.type} == {I32, U32}:
        if a.type is U32:
            a, b, sign = b, a, mirrored
        return _compare_signs(sign, a, b, pure)
    natural = a.natural and b.natural and a.constant is None and b.constant is None
    a, b, kind = together(a, b, sign)
    if kind is I32 and natural and sign not in ("==", "!="):
        # As unsigned numbers, so that a position that is less than an array's length is known to be within the array.
        return Value(f"({unsigned(a)} {sign} {unsigned(b)})", BOOL, pure=pure)
    return Value(f"({a.text} {sign} {b.text})", BOOL, pure=pure)


#: Unsigned numbers that were made signed.
_SIGNED = re.compile(r"i32\((vy_\w+\.[xyz]|arrayLength\(&\w+\))\)")


def unsigned(value: Value) -> str:
    """An i32 that is not negative as a u32."""
    if value.unsigned:
        return value.unsigned
    made = _SIGNED.fullmatch(value.text)
    return made[1] if made else f"u32({value.text})"


def _compare_signs(sign: str, a: Value, b: Value, pure: bool) -> Value:
    """An i32 and a u32 as the numbers that they are, which no conversion of either is."""
    unsigned = f"(u32({a.text}) {sign} {b.text})"
    if a.natural:
        return Value(unsigned, BOOL, pure=pure)
    if not a.pure:
        raise Problem("this changes memory and is compared with a u32", "Assign it to a variable first.")
    if sign in ("<", "<=", "!="):
        return Value(f"(({a.text} < 0i) || {unsigned})", BOOL, pure=pure)
    return Value(f"(({a.text} >= 0i) && {unsigned})", BOOL, pure=pure)
