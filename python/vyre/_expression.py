"""Operators on arrays. They make expressions, which are computed in one kernel when their value is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _vyre
from ._vyre import Array, Term

if TYPE_CHECKING:
    import numpy as np

_INTEGERS = ("int32", "uint32", "int64", "uint64")
_FLOATS = ("float16", "float32", "float64")


class Expression:
    """What is computed of arrays, position by position. Shapes fit as in NumPy. Numbers of Python take the type of the arrays, integers
    with floats become floats, and nothing else changes its type unasked. The arrays are taken as they are when it is made."""

    #: NumPy's arrays leave operators to this class.
    __array_ufunc__ = None

    def __init__(self, term: Term) -> None:
        self._term = term

    @property
    def shape(self) -> tuple[int, ...]:
        return self._term.shape

    @property
    def ndim(self) -> int:
        return len(self._term.shape)

    @property
    def size(self) -> int:
        count = 1
        for extent in self._term.shape:
            count *= extent
        return count

    @property
    def dtype(self) -> np.dtype[Any]:
        import numpy

        # Truth is computed as it is, and stored as 1 and 0.
        return numpy.dtype(numpy.uint32 if self._term.dtype == "bool" else self._term.dtype)

    def eval(self) -> Array:
        """The value as an array. It is computed once; this returns at once."""
        return self._term.evaluate()

    __vyre_array__ = eval

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.eval().numpy()

    def tolist(self) -> Any:
        return self.eval().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.eval().__array__(dtype, copy)

    def __getitem__(self, key: Any) -> Any:
        return self.eval()[key]

    def __len__(self) -> int:
        return len(self.eval())

    def astype(self, dtype: Any) -> Expression:
        """The value in another type: floats are cut off and saturate, and NaN gives 0."""
        import numpy

        name = dtype if isinstance(dtype, str) and dtype == "bfloat16" else numpy.dtype(dtype).name
        if name == "bfloat16":
            raise TypeError("expressions compute with bfloat16 as float32; store them with vyre.array(x.numpy(), dtype='bfloat16')")
        return Expression(self._term.cast(name))

    def __repr__(self) -> str:
        return f"vyre.Expression(shape={self.shape}, dtype={self._term.dtype})"


def _astype(array: Array, dtype: Any) -> Expression:
    return Expression(Term.array(array)).astype(dtype)


def term_of(value: Any) -> Term | int | float | bool | None:
    """The term of an operand; numbers of Python stay what they are, until their type is known. ``None`` for anything else."""
    if isinstance(value, Expression):
        return value._term
    if isinstance(value, Array):
        return Term.array(value)
    if isinstance(value, (bool, int, float)):
        return value
    if hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__"):
        if getattr(value, "shape", None) == ():
            return value.item()  # type: ignore[no-any-return]
        return Term.array(_vyre.from_host(value))
    return None


def together(values: list[Term | int | float | bool], floats: bool = False) -> list[Term]:
    """Operands in the type that they have in common; ``floats`` where they have to be floats."""
    kinds = {value.dtype for value in values if isinstance(value, Term)}
    if len(kinds) > 1:
        real = [kind for kind in kinds if kind in _FLOATS]
        if len(real) != 1 or "bool" in kinds:
            raise TypeError(f"{' and '.join(sorted(kinds))} are not computed with each other; convert one: x.astype('{sorted(kinds)[0]}')")
        kinds = set(real)
    kind = kinds.pop() if kinds else "float32"
    if kind in _INTEGERS and (floats or any(isinstance(value, float) for value in values)):
        kind = "float32" if kind.endswith("32") else "float64"
    return [value.cast(kind) if isinstance(value, Term) else Term.scalar(_number(value, kind), kind) for value in values]


def _number(value: Any, kind: str) -> Any:
    return float(value) if kind in _FLOATS else value


def math(name: str, *values: Any) -> Expression:
    """A function of arrays and numbers."""
    terms = [term_of(value) for value in values]
    if any(term is None for term in terms):
        raise TypeError(f"`{name}` takes arrays and numbers")
    of_numbers = name in ("abs", "sign", "min", "max", "clamp", "count_one_bits")
    return Expression(Term.math(name, *together(terms, floats=not of_numbers)))  # type: ignore[arg-type]


def select(condition: Any, yes: Any, no: Any) -> Expression:
    """One of two values for each position."""
    choice = term_of(condition)
    if not isinstance(choice, Term):
        raise TypeError("the condition is no array")
    if choice.dtype != "bool":
        choice = choice.binary("!=", Term.scalar(_number(0, choice.dtype), choice.dtype))
    terms = [term_of(yes), term_of(no)]
    if any(term is None for term in terms):
        raise TypeError("`select` takes arrays and numbers")
    return Expression(choice.select(*together(terms)))  # type: ignore[arg-type]


def is_lazy(value: Any) -> bool:
    """Whether operators on it make expressions."""
    return isinstance(value, (Array, Expression))


def _floor_divide(a: Term, b: Term) -> Term:
    quotient = a.binary("/", b)
    if a.dtype in _FLOATS:
        return Term.math("floor", quotient)
    if a.dtype.startswith("uint"):
        return quotient
    one = Term.scalar(1, a.dtype)
    return _is_off(a.binary("%", b), b).select(quotient.binary("-", one), quotient)


def _modulo(a: Term, b: Term) -> Term:
    rest = a.binary("%", b)
    return rest if a.dtype.startswith("uint") else _is_off(rest, b).select(rest.binary("+", b), rest)


def _is_off(rest: Term, b: Term) -> Term:
    """Where rounding towards zero differs from rounding down, as Python does: a remainder with another sign than the divisor."""
    zero = Term.scalar(_number(0, b.dtype), b.dtype)
    return rest.binary("!=", zero).binary("&", rest.binary("<", zero).binary("!=", b.binary("<", zero)))


def _power(a: Any, b: Any) -> Term:
    """Whole constant exponents multiply, so that signs and integers stay exact."""
    if isinstance(b, int) and isinstance(a, Term) and 0 <= b <= 64:
        result, square = None, a
        while b:
            if b & 1:
                result = square if result is None else result.binary("*", square)
            b >>= 1
            square = square.binary("*", square) if b else square
        return result if result is not None else a.binary("-", a).binary("+", Term.scalar(_number(1, a.dtype), a.dtype))
    return Term.math("pow", *together([a, b], floats=True))


def _binary(sign: str, a: Any, b: Any) -> Any:
    left, right = term_of(a), term_of(b)
    if left is None or right is None:
        return NotImplemented
    if sign == "**":
        return Expression(_power(left, right))
    if sign in ("<<", ">>"):
        (left,) = together([left])
        count = right.cast("uint32") if isinstance(right, Term) else Term.scalar(right, "uint32")
        return Expression(left.binary(sign, count))
    first, second = together([left, right], floats=sign == "/")
    if sign == "//":
        return Expression(_floor_divide(first, second))
    if sign == "%":
        return Expression(_modulo(first, second))
    return Expression(first.binary(sign, second))


def _operator(sign: str, reflected: bool) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        return _binary(sign, other, self) if reflected else _binary(sign, self, other)

    return operator


def _negative(self: Any) -> Expression:
    term = term_of(self)
    assert isinstance(term, Term)
    return Expression(term.unary("-"))


def _inverted(self: Any) -> Expression:
    term = term_of(self)
    assert isinstance(term, Term)
    return Expression(term.unary("!"))


def _absolute(self: Any) -> Expression:
    return math("abs", self)


def _item(self: Any) -> Any:
    """The one element, as a number of Python."""
    return self.numpy().item()


def _truth(self: Any) -> bool:
    if self.size != 1:
        raise ValueError("the truth of an array with several elements is not clear; say x.any() or x.all()")
    return bool(_item(self))


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|",
          "xor": "^", "lshift": "<<", "rshift": ">>"}  # fmt: skip
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _install(kind: Any) -> None:
    """Gives a class the operators. Arrays are made in Rust, and have them from here, so that the rules stand in one place."""
    for name, sign in _SIGNS.items():
        setattr(kind, f"__{name}__", _operator(sign, reflected=False))
        setattr(kind, f"__r{name}__", _operator(sign, reflected=True))
    for name, sign in _COMPARISONS.items():
        setattr(kind, f"__{name}__", _operator(sign, reflected=False))
    kind.__neg__ = _negative
    kind.__invert__ = _inverted
    kind.__abs__ = _absolute
    kind.item = _item
    kind.__bool__ = _truth
    kind.__float__ = lambda self: float(_item(self))
    kind.__int__ = lambda self: int(_item(self))
    kind.__array_ufunc__ = None
    # Comparing makes an expression, so they are told apart by what they are.
    kind.__hash__ = object.__hash__


_install(Expression)
_install(Array)
setattr(Array, "astype", _astype)  # noqa: B010: a checker takes the stub's name for it
