"""A function's expressions as WGSL."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import language
from .scopes import Scopes
from .source import Problem, Source, Unsupported
from .types import BOOL, F16, F32, I32, U32, Scalar
from .unit import Unit, safe
from .values import (
    Array,
    Value,
    as_type,
    binary,
    compare,
    convert,
    python_constant,
    settled,
    together,
    truth,
    typed_constant,
    unary,
    unsigned,
)  # fmt: skip

_MISSING = object()

_REFUSED: dict[type[ast.expr], tuple[str, str]] = {
    ast.List: ("a list", "Use `vyre.local((n,), vyre.f32)`, or an array that is passed."),
    ast.Tuple: ("a tuple", "Unpack it, or use `vyre.local((n,), vyre.f32)`."),
    ast.Dict: ("a dict", "Use arrays."),
    ast.Set: ("a set", "Use arrays."),
    ast.ListComp: ("a comprehension", "Write a `for` loop."),
    ast.GeneratorExp: ("a generator", "Write a `for` loop."),
    ast.SetComp: ("a comprehension", "Write a `for` loop."),
    ast.DictComp: ("a comprehension", "Write a `for` loop."),
    ast.Lambda: ("a lambda", "Write a function at the top of the file, and call it by name."),
    ast.JoinedStr: ("a text", "Kernels have numbers; write them into an array."),
    ast.Await: ("`await`", "Await the launch instead: `await kernel.launch(…)`."),
    ast.Yield: ("`yield`", "Write results into an array."),
    ast.YieldFrom: ("`yield`", "Write results into an array."),
    ast.NamedExpr: ("`:=`", "Assign on a line of its own."),
    ast.Starred: ("`*`", "Name every argument."),
    ast.Slice: ("a slice", "Loop over its elements."),
}


class Expressions:
    """What the expressions of one function need to be translated."""

    scopes: Scopes

    def __init__(self, unit: Unit, function: Callable[..., Any], source: Source, is_kernel: bool) -> None:
        self.unit = unit
        self.function = function
        self.source = source
        self.is_kernel = is_kernel
        self.arrays: dict[str, Array] = dict(unit.arrays) if is_kernel else {}
        #: Variables: their type, and where they were assigned first.
        self.types: dict[str, tuple[Scalar, ast.AST]] = {}
        self.naturals: dict[str, bool] = {}
        self.texts: dict[str, str] = {}
        #: Variables that are an id or a length and are assigned once: the unsigned number that they are made of.
        self.unsigned: dict[str, str] = {}
        self.loop_types: dict[str, tuple[Scalar, bool]] = {}
        #: Variables of loops that are written out, with their values in this round.
        self.rounds: dict[str, int] = {}
        #: Variables that have a value on every way to here.
        self.assigned: set[str] = set(self.arrays)
        self.poisoned: set[str] = set()
        self.changes = False
        #: Variables that stand before all statements.
        self.hoisted: dict[str, str] = {}

    def parameter(self, name: str, kind: Scalar, text: str, natural: bool) -> None:
        """A number that is passed."""
        self.types[name] = (kind, self.source.tree)
        self.assigned.add(name)
        if self.scopes.is_assigned(name):
            self.hoisted[name] = f"var {safe(name)}: {kind.name} = {text};"
        else:
            self.texts[name] = text
            self.naturals[name] = natural

    # Names.

    def resolve_or_none(self, node: ast.AST) -> Any:
        """The object of Python that a name or an attribute means outside of the kernel; ``None`` where it means none."""
        if isinstance(node, ast.Name):
            found = self.outside(node.id)
            return None if found is _MISSING else found
        if isinstance(node, ast.Attribute):
            base = self.resolve_or_none(node.value)
            return None if base is None else getattr(base, node.attr, None)
        if isinstance(node, ast.Constant):
            return node.value
        return None

    def resolve(self, node: ast.AST) -> Any:
        return self.resolve_or_none(node)

    def outside(self, name: str) -> Any:
        if name in self.scopes.locals:
            return _MISSING
        function: Any = self.function
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if free == name:
                try:
                    return cell.cell_contents
                except ValueError:
                    return _MISSING
        if name in function.__globals__:
            return function.__globals__[name]
        return getattr(builtins, name, _MISSING)

    # Values.

    def value(self, node: ast.expr) -> Value:
        """An expression as a number."""
        try:
            method = getattr(self, f"of_{type(node).__name__}", None)
            if method is None:
                what, fix = _REFUSED.get(type(node), (f"`{type(node).__name__}`", "Write it with numbers and arrays."))
                raise Unsupported(what, fix, node)
            found: Value = method(node)
            if found.type is None and found.constant is None:
                raise Problem("this gives nothing back", "Call it on a line of its own.", node)
            if found.type is F16:
                self.unit.uses_f16 = True
            return found
        except Problem as problem:
            problem.node = problem.node or node
            problem.source = problem.source or self.source
            raise

    def of_Constant(self, node: ast.Constant) -> Value:
        found = python_constant(node.value)
        if found is None:
            raise Unsupported(f"{type(node.value).__name__} {node.value!r}", "Kernels have numbers and arrays.", node)
        return found

    def of_Name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self.loop_types:
            kind, natural = self.loop_types[name]
            return Value(safe(name), kind, natural=natural)
        if name in self.rounds:
            return Value("", None, self.rounds[name], natural=self.rounds[name] >= 0)
        if name in self.poisoned:
            raise Problem("", "", node)
        if name in self.arrays:
            raise Problem(f"`{name}` is an array", f"Take an element: `{name}[i]`; or its length: `{name}.size`.", node)
        if name in self.types:
            if name not in self.assigned:
                raise Problem(f"`{name}` has no value on some way to here", "Assign it before the `if` or the loop.", node)
            text = self.texts.get(name, safe(name))
            return Value(text, self.types[name][0], natural=self.naturals.get(name, False), unsigned=self.unsigned.get(name, ""))
        if name in self.scopes.loop_variables:
            raise Problem(f"`{name}` is used outside of its loop", "Copy it into another variable inside the loop.", node)
        if name in self.scopes.locals:
            raise Problem(f"`{name}` has no value yet", "Assign it first.", node)
        found = self.outside(name)
        if found is _MISSING:
            raise Problem(f"`{name}` is not defined", "Define it before the kernel, or pass it.", node)
        return self.captured(found, f"`{name}`", node)

    def captured(self, found: Any, shown: str, node: ast.AST) -> Value:
        value = python_constant(found)
        if value is not None:
            return value
        if isinstance(found, np.ndarray) or hasattr(found, "__array__"):
            raise Problem(f"{shown} is an array that is not passed", "Make it a parameter of the kernel.", node)
        raise Unsupported(
            f"{shown}, which is a {type(found).__name__},", "Numbers from outside are taken as constants; pass all else.", node
        )

    def of_Attribute(self, node: ast.Attribute) -> Value:
        array = self.array_or_none(node.value)
        if array is not None:
            if node.attr == "size":
                return self.product(array)
            fix = "Arrays have `.size`, `.shape[k]` and `len(…)`."
            raise Unsupported(f"`.{node.attr}` of an array", fix, node)
        found = self.resolve_or_none(node)
        if found is None:
            raise Unsupported(f"`.{node.attr}`", "Use numbers, arrays, and names of modules.", node)
        return self.captured(found, f"`{ast.unparse(node)}`", node)

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        return unary(node.op, self.value(node.operand))

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return binary(node.op, self.value(node.left), self.value(node.right), self.unit.helpers)

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        sign, absorbing = ("&&", False) if isinstance(node.op, ast.And) else ("||", True)
        texts: list[str] = []
        pure = True
        for part in node.values:
            value = self.value(part)
            if value.type is not BOOL:
                word = "and" if sign == "&&" else "or"
                raise Problem(f"`{word}` of numbers", f"Compare them: `x != 0 {word} …`, or write `vyre.select(…)`.", part)
            value = truth(value)
            if value.constant is not None:
                if value.constant is absorbing and not texts:
                    return value
                if value.constant is not absorbing:
                    continue
            texts.append(value.text)
            pure = pure and value.pure
        if not texts:
            return typed_constant(BOOL, not absorbing)
        return Value(f"({f' {sign} '.join(texts)})", BOOL, pure=pure)

    def of_Compare(self, node: ast.Compare) -> Value:
        values = [self.value(part) for part in [node.left, *node.comparators]]
        for middle, part in zip(values[1:-1], node.comparators, strict=False):
            if not middle.pure:
                raise Problem("the middle of a comparison changes memory", "Assign it to a variable first.", part)
        found = [compare(op, a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False)]
        if any(one.constant is False for one in found):
            return typed_constant(BOOL, False)
        open_ones = [one for one in found if one.constant is None]
        if not open_ones:
            return typed_constant(BOOL, True)
        if len(open_ones) == 1:
            return open_ones[0]
        return Value(f"({' && '.join(one.text for one in open_ones)})", BOOL, pure=all(one.pure for one in open_ones))

    def of_IfExp(self, node: ast.IfExp) -> Value:
        condition = truth(self.value(node.test))
        if condition.constant is not None:
            return self.value(node.body if condition.constant else node.orelse)
        return self.selected(condition, self.value(node.body), self.value(node.orelse))

    def selected(self, condition: Value, yes: Value, no: Value) -> Value:
        if not (yes.pure and no.pure):
            raise Problem("one side of the choice changes memory, and both are computed", "Write `if` and `else`.")
        if yes.type is BOOL and no.type is BOOL:
            kind = BOOL
        else:
            if yes.type is None and no.type is None:
                float_side = isinstance(yes.constant, float) or isinstance(no.constant, float)
                yes = as_type(yes, F32 if float_side else I32, "it")
            yes, no, kind = together(yes, no, "if … else")
        natural = yes.natural and no.natural
        return Value(f"select({no.text}, {yes.text}, {condition.text})", kind, natural=natural, pure=condition.pure)

    # Arrays.

    def array_or_none(self, node: ast.AST) -> Array | None:
        if isinstance(node, ast.Name) and node.id not in self.loop_types:
            return self.arrays.get(node.id)
        return None

    def shown_array(self, array: Array) -> str:
        return array.parameter or array.name

    def product(self, array: Array) -> Value:
        if all(isinstance(extent, int) for extent in array.extents):
            return Value("", None, math.prod(int(extent) for extent in array.extents), natural=True)
        text = " * ".join(str(extent) for extent in array.extents)
        return Value(text if len(array.extents) == 1 else f"({text})", I32, natural=True)

    def extent(self, array: Array, axis: ast.expr) -> Value:
        position = self.value(axis)
        if not isinstance(position.constant, int) or not -len(array.extents) <= position.constant < len(array.extents):
            raise Problem("the axis is no constant of those that the array has", f"It has {len(array.extents)}.", axis)
        extent = array.extents[position.constant]
        return Value("", None, extent, natural=True) if isinstance(extent, int) else Value(extent, I32, natural=True)

    def place(self, node: ast.Subscript) -> tuple[Array, str]:
        """The array of an element, and where the element lies in it."""
        array = self.array_or_none(node.value)
        if array is None:
            if isinstance(node.value, ast.Subscript) and self.array_or_none(node.value.value) is not None:
                raise Problem("one index behind another", "Write both in one: `a[i, j]`.", node)
            if isinstance(node.value, ast.Name) and node.value.id in self.poisoned:
                raise Problem("", "", node)
            outside = self.resolve_or_none(node.value)
            if isinstance(outside, np.ndarray):
                raise Problem(f"`{ast.unparse(node.value)}` is an array that is not passed", "Make it a parameter of the kernel.", node)
            raise Problem(f"`{ast.unparse(node.value)}` is no array of this kernel", "Index arrays that are passed or made here.", node)
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        shown = self.shown_array(array)
        if len(parts) != len(array.extents):
            message = f"`{shown}` has {len(array.extents)} axes, and {len(parts)} indices are here"
            raise Problem(message, f"Write `{shown}[{', '.join('ijkl'[: len(array.extents)])}]`.", node)
        flat: Value | None = None
        for axis, part in enumerate(parts):
            index = self.index(part, shown)
            if flat is None:
                flat = index
                continue
            extent = array.extents[axis]
            width = Value("", None, extent, natural=True) if isinstance(extent, int) else Value(extent, I32, natural=True)
            # Flat indices are signed, whatever the parts are.
            row = binary(ast.Mult(), convert(flat, I32) if flat.type is U32 else flat, width, self.unit.helpers)
            flat = binary(ast.Add(), row, convert(index, I32) if index.type is U32 else index, self.unit.helpers)
        assert flat is not None
        flat = settled(flat)
        # What is never negative needs no test of its own where it is known to be less than the array's length.
        is_known = array.kind == "buffer" and flat.natural and flat.type is I32 and flat.constant is None
        return array, unsigned(flat) if is_known else flat.text

    def index(self, node: ast.expr, shown: str) -> Value:
        value = self.value(node)
        if value.type is BOOL or (value.type or F32).is_float and not isinstance(value.constant, int):
            raise Problem(f"the index is {value.shown}", "Convert it: `int(…)`.", node)
        if isinstance(value.constant, int) and value.constant < 0:
            raise Problem("an index from the end", f"Write `{shown}[{shown}.size - {-value.constant}]`.", node)
        if not value.pure:
            raise Problem("the index changes memory", "Assign it to a variable first.", node)
        return value

    def is_atomic_array(self, array: Array) -> bool:
        return (array.parameter or array.name) in self.unit.atomic

    def is_atomic(self, node: ast.AST) -> bool:
        array = self.array_or_none(node.value) if isinstance(node, ast.Subscript) else None
        return array is not None and self.is_atomic_array(array)

    def changed(self, array: Array) -> None:
        if array.kind != "local":
            self.changes = True
        if array.kind == "buffer":
            self.unit.written.add(array.parameter)

    def element(self, node: ast.Subscript) -> Value:
        array, index = self.place(node)
        if array.kind == "buffer":
            self.unit.read.add(array.parameter)
        if self.is_atomic_array(array):
            return Value(f"atomicLoad(&{array.name}[{index}])", array.element)
        base = f"(*{array.name})" if array.kind == "pointer" else array.name
        return Value(f"{base}[{index}]", array.element, natural=array.element is U32)

    def of_Subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            array = self.array_or_none(node.value.value)
            if array is not None:
                return self.extent(array, node.slice)
        call = node.value
        if isinstance(call, ast.Call) and self.resolve_or_none(call.func) in (*language.IDS, language.workgroup_size):
            raise Unsupported("an index into ids", "Unpack them: `i, j = vyre.grid(2)`.", node)
        outside = self.resolve_or_none(node.value)
        if isinstance(outside, tuple):
            position = self.value(node.slice)
            if not isinstance(position.constant, int) or not -len(outside) <= position.constant < len(outside):
                raise Unsupported("an index into a tuple that is not constant", "Pass the numbers as an array.", node)
            return self.captured(outside[position.constant], f"`{ast.unparse(node)}`", node)
        return self.element(node)

    # Calls.

    def of_Call(self, node: ast.Call) -> Value:
        from .calls import call_value

        return call_value(self, node)

    def call_statement(self, node: ast.Call) -> str:
        from .calls import call_text

        try:
            return call_text(self, node)
        except Problem as problem:
            problem.node = problem.node or node
            raise

    def array_made(self, node: ast.Call, name: str) -> Array | None:
        from .calls import array_made

        return array_made(self, node, name)

    def several(self, node: ast.expr) -> list[Value]:
        """An expression that gives several numbers at once: ids, and an array's shape."""
        from .calls import ids

        if isinstance(node, ast.Call) and (found := self.resolve_or_none(node.func)) in (*language.IDS, language.workgroup_size):
            return ids(self, found, node)
        if isinstance(node, ast.Attribute) and node.attr == "shape" and (array := self.array_or_none(node.value)) is not None:
            return [
                Value("", None, extent, natural=True) if isinstance(extent, int) else Value(extent, I32, natural=True)
                for extent in array.extents
            ]
        raise Unsupported("unpacking this", "Unpack `vyre.grid(2)`, `a.shape`, or as many values as there are names.", node)
