"""The WGSL of one kernel: its buffers, its functions, and which line of Python each line of it comes from."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .source import Problem, Source, Unsupported, error_of
from .types import BOOL, F16, I32, ArrayType, Scalar, scalar_of
from .values import HELPERS, Array

#: Words of WGSL that a name can't be, and functions that translated kernels call.
RESERVED = frozenset(
    """alias array as asm atan2 atanh abs acos acosh all any asin asinh async atan atomic attribute auto await become bitcast bool break
    case cast catch ceil clamp class co_await common compile concept const const_assert constexpr continue continuing core cos cosh crate
    crosshair debugger decltype default degrees delete demote deriv diagnostic discard do dot dynamic else enable enum ensures exp exp2
    explicit export extends extern external f16 f32 fallthrough false fast filter final finally floor fma fn for fract friend from fxgroup
    get goto handle highp i32 if impl implements import inline instanceof interface inverseSqrt layout let log log2 loop lowp macro mat2x2
    match max mediump meta min mod module move mut namespace new nil noexcept null nullptr of operator override package packoffset
    pass patch pixelfragment pow precise precision premerge priv protected ptr pub public quantizeToF16 radians readonly ref regardless
    register reinterpret_cast require requires resource restrict return round sampler select self set shared sign signed sin sinh sizeof
    smooth snorm sqrt static std storage struct struct_ super switch tan tanh target template texture this thread_local throw
    trait true trunc try type typedef typeid typename typeof u32 union unless unorm unsafe unsized use using var varying vec2 vec3 vec4
    virtual volatile wgsl where while with write writeonly yield countOneBits workgroupBarrier storageBarrier main""".split()
)


def safe(name: str) -> str:
    """A name of Python that means nothing else in WGSL."""
    if name == "_" or name.startswith("__"):
        return f"vy_{name}"
    return f"{name}_u" if name in RESERVED or name.startswith("vy_") else name


@dataclass
class Parameter:
    """A parameter of a kernel."""

    name: str
    type: Scalar | ArrayType


def parameters_of(function: Callable[..., Any], source: Source) -> list[Parameter]:
    """The annotated parameters of a kernel."""
    problems: list[Problem] = []
    try:
        annotations = inspect.get_annotations(function, eval_str=True)
    except Exception as error:
        problem = Problem(
            f"the annotations of `{source.name}` can't be understood: {error}", "Annotate with vyre.f32, vyre.f32[:] and so on."
        )
        raise error_of([problem], source) from error
    found = []
    arguments = source.tree.args
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            problems.append(Unsupported(f"`*{extra.arg}`", "Name every parameter.", extra))
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        annotation = annotations.get(argument.arg)
        kind = annotation if isinstance(annotation, ArrayType) else scalar_of(annotation)
        if kind is None or (isinstance(kind, ArrayType) and kind.element is BOOL) or kind is F16:
            what = "has no annotation" if annotation is None else f"is annotated as {annotation!r}"
            message = f"parameter `{argument.arg}` {what}"
            fix = "Annotate it with a type of kernels: vyre.f32, vyre.i32, vyre.u32, vyre.bool_; vyre.f32[:], vyre.f32[:, :] and so on."
            problems.append(Problem(message, fix, argument))
        else:
            found.append(Parameter(argument.arg, kind))
    defaults = [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]
    problems.extend(Unsupported("a default value", "Pass every argument.", default) for default in defaults)
    if problems:
        raise error_of(problems, source)
    return found


Line = tuple[int, str, Source | None, ast.AST | None]


class Unit:
    """What a kernel's functions have in common while they are translated."""

    def __init__(
        self,
        parameters: list[Parameter],
        workgroup: tuple[int, ...] | None,
        atomic: frozenset[str] = frozenset(),
        exchanges: bool = False,
    ) -> None:
        self.parameters = parameters
        self.workgroup = workgroup
        #: Arrays whose elements are atomic, as a translation before has found.
        self.atomic = atomic
        #: Whether invocations may read from a buffer what others have written.
        self.exchanges = exchanges
        self.found_atomic: set[str] = set()
        self.written: set[str] = set()
        self.read: set[str] = set()
        self.helpers: set[str] = set()
        self.ids: set[str] = set()
        self.axes = 1
        self.uses_barrier = False
        self.uses_f16 = False
        self.problems: list[Problem] = []
        self.shared: list[tuple[str, Scalar, int, Source, ast.AST]] = []
        self.functions: list[list[Line]] = []
        #: Functions that were translated for some arguments: the name in WGSL, what they give, and whether they change memory.
        self.known: dict[Any, tuple[str, Scalar | None, bool]] = {}
        self.under_way: list[Any] = []
        self.names: set[str] = set()
        self.arrays: dict[str, Array] = {}
        for parameter in parameters:
            if isinstance(parameter.type, ArrayType):
                name, ndim = safe(parameter.name), parameter.type.ndim
                extents: tuple[str | int, ...] = (f"i32(arrayLength(&{name}))",)
                if ndim > 1:
                    extents = tuple(f"vy_args.{name}_{axis}" for axis in range(ndim))
                self.names.add(name)
                self.arrays[parameter.name] = Array(name, parameter.type.element, extents, "buffer", parameter.name)

    def unique(self, name: str) -> str:
        """A name that nothing else at the top of the text has."""
        name, number = name if name.startswith("vy_") else safe(name), 1
        candidate = name
        while candidate in self.names:
            number += 1
            candidate = f"{name}_{number}"
        self.names.add(candidate)
        return candidate

    @property
    def workgroup_size(self) -> tuple[int, ...]:
        """Invocations of a workgroup, the last axis the fastest."""
        return self.workgroup or {1: (256,), 2: (8, 32), 3: (4, 8, 8)}[self.axes]

    def members(self) -> list[tuple[str, Scalar]]:
        """Numbers that a call passes besides its arrays: its scalars, and the extents of arrays with several axes."""
        found = []
        for parameter in self.parameters:
            name = safe(parameter.name)
            if isinstance(parameter.type, Scalar):
                found.append((name, parameter.type))
            elif parameter.type.ndim > 1:
                found.extend((f"{name}_{axis}", I32) for axis in range(parameter.type.ndim))
        return found

    def assemble(self, body: list[Line], source: Source) -> tuple[str, list[tuple[Source, ast.AST] | None]]:
        """The text, and for each of its lines where that comes from."""
        here: tuple[Source, ast.AST] = (source, source.tree)
        lines: list[Line] = []
        if self.uses_f16:
            lines.append((0, "enable f16;", *here))
        binding = 0
        for array in self.arrays.values():
            access = "read_write" if array.parameter in self.written else "read"
            element = f"atomic<{array.element.name}>" if array.parameter in self.atomic else array.element.name
            lines.append((0, f"@group(0) @binding({binding}) var<storage, {access}> {array.name}: array<{element}>;", *here))
            binding += 1
        if members := self.members():
            inner = ", ".join(f"{name}: {'u32' if kind is BOOL else kind.name}" for name, kind in members)
            lines.append((0, f"struct vy_Args {{ {inner} }}", *here))
            lines.append((0, f"@group(0) @binding({binding}) var<uniform> vy_args: vy_Args;", *here))
        for name, kind, count, where, node in self.shared:
            element = f"atomic<{kind.name}>" if name in self.atomic else kind.name
            lines.append((0, f"var<workgroup> {name}: array<{element}, {count}>;", where, node))
        lines.extend((0, HELPERS[name], *here) for name in sorted(self.helpers))
        for function in self.functions:
            lines.extend(function)
        size = ", ".join(str(n) for n in reversed(self.workgroup_size))
        builtins = ", ".join(f"@builtin({name}) vy_{name}: vec3<u32>" for name in sorted(self.ids))
        lines.append((0, f"@compute @workgroup_size({size})", *here))
        lines.append((0, f"fn {self.unique(source.name)}({builtins}) {{", *here))
        lines.extend(body)
        lines.append((0, "}", *here))
        text = "\n".join("    " * depth + line for depth, line, _, _ in lines) + "\n"
        origins = [(where, node) if where is not None and node is not None else None for _, _, where, node in lines]
        return text, origins
