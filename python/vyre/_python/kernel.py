"""``@vyre.kernel``: a function of Python as a kernel."""

from __future__ import annotations

import ast
import importlib
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast, overload

import numpy as np

from .._kernels import Math
from .._vyre import Kernel, Launch
from ..errors import KernelError, VyreError
from .interpret import Checked, run
from .source import Source
from .translate import translate
from .types import BOOL, I32, ArrayType, Scalar
from .unit import Parameter, safe

_FORMATS = {"f32": "f", "i32": "i", "u32": "I", "bool": "I"}


class Origin(NamedTuple):
    """Where a line of WGSL comes from, as text, so that it travels to other processes."""

    place: tuple[int, int]
    shown: str


class PythonKernel:
    """A kernel that was written as a Python function. Call it with arrays and numbers; ``source`` is its WGSL, ``interpret`` runs it as
    ordinary Python."""

    def __init__(
        self,
        native: Kernel,
        parameters: list[Parameter],
        origins: list[Origin | None],
        barriers: list[Origin],
        name: str,
        module: str,
        function: Callable[..., Any] | None,
    ) -> None:
        self._native = native._with_axes({safe(p.name): p.type.ndim for p in parameters if isinstance(p.type, ArrayType)})
        self._parameters = parameters
        self._origins = origins
        self._barriers = barriers
        self._module = module
        self._function = function
        self.__name__ = self.__qualname__ = name
        used = set(native.buffers)
        self._buffer_count = len(used)
        self._names = [parameter.name for parameter in parameters]
        self._arrays = [
            (at, safe(p.name), p.type.ndim, safe(p.name) in used) for at, p in enumerate(parameters) if isinstance(p.type, ArrayType)
        ]
        self._scalars = [(at, p.type) for at, p in enumerate(parameters) if isinstance(p.type, Scalar)]
        layout = ""
        for parameter in parameters:
            layout += (
                _FORMATS[parameter.type.name]
                if isinstance(parameter.type, Scalar)
                else "i" * parameter.type.ndim * (parameter.type.ndim > 1)
            )
        self._layout = struct.Struct(f"={layout}") if "vy_args" in used else None
        # Arrays and nothing else, in the order of the kernel's buffers: a call of them goes straight there.
        self._plain = len(parameters) if native.buffers == [safe(p.name) for p in parameters] else -1
        self._quick = self._in_one_go(native.buffers)
        if function is not None:
            self.__doc__ = function.__doc__ or self.__doc__
            self.__wrapped__ = function

    # Calls.

    def _numbers(self, args: Any) -> bytes:
        """The numbers of a call as bytes, in the order of the parameters."""
        numbers: list[Any] = []
        for argument, parameter in zip(args, self._parameters, strict=True):
            if isinstance(parameter.type, Scalar):
                numbers.append(bool(argument) if parameter.type is BOOL else argument)
            elif parameter.type.ndim > 1:
                numbers.extend(argument.shape)
        assert self._layout is not None
        try:
            return self._layout.pack(*numbers)
        except (OverflowError, struct.error) as error:
            for argument, parameter in zip(args, self._parameters, strict=True):
                if isinstance(parameter.type, Scalar):
                    _check_number(parameter, argument)
            raise TypeError(f"`{self.__name__}`: {error}") from None

    def _in_one_go(self, buffers: list[str]) -> Callable[..., tuple[Any, ...]] | None:
        """A function of a call's arguments that gives what the kernel's buffers take, where all arrays are used and the numbers come behind
        them. It looks at nothing: what is wrong is found by those who take it, or by `_bound`."""
        names = [f"a{at}" for at in range(len(self._parameters))]
        arrays = [(name, p.type.ndim) for name, p in zip(names, self._parameters, strict=True) if isinstance(p.type, ArrayType)]
        if self._layout is None or buffers != [safe(self._names[int(name[1:])]) for name, _ in arrays] + ["vy_args"]:
            return None
        numbers = [
            name if isinstance(p.type, Scalar) else f"*{name}.shape"
            for name, p in zip(names, self._parameters, strict=True)
            if isinstance(p.type, Scalar) or p.type.ndim > 1
        ]
        given = "".join(f"{name}, " for name, _ in arrays)
        text = f"lambda {', '.join(names)}, /: ({given}pack({', '.join(numbers)}),)"
        return cast(Callable[..., tuple[Any, ...]], eval(text, {"pack": self._layout.pack}))

    def _bound(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments for the kernel's buffers."""
        if named or len(args) != len(self._parameters):
            args = self._in_order(args, named)
        bound, by_name = [], {}
        for at, name, ndim, used in self._arrays:
            argument = args[at]
            if argument is None:
                if ndim > 1:
                    raise TypeError(f"`{self.__name__}` needs `{self._names[at]}`: the shape of a result with {ndim} axes is not known")
                continue
            shape = getattr(argument, "shape", None)
            if shape is not None and len(shape) != ndim:
                raise TypeError(f"`{self._names[at]}` has {ndim} axes, and an array of shape {tuple(shape)} was given")
            if shape is None and ndim > 1:
                argument = np.asarray(argument)
                raise TypeError(f"`{self._names[at]}` was given something without a shape; make it an array: numpy.asarray(…)")
            if used:
                by_name[name] = argument
                bound.append(argument)
        if self._layout is not None:
            numbers = self._numbers(args)
            by_name["vy_args"] = numbers
            bound.append(numbers)
        if len(bound) == self._buffer_count:
            return bound, {}
        return [], by_name

    def _in_order(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        if len(args) > len(self._names):
            raise TypeError(f"`{self.__name__}` takes {len(self._names)} arguments, and {len(args)} were given")
        given: list[Any] = [*args, *([None] * (len(self._names) - len(args)))]
        for name, argument in named.items():
            if name not in self._names:
                raise TypeError(f"`{self.__name__}` has no parameter {name!r}; it has {', '.join(self._names)}")
            at = self._names.index(name)
            if at < len(args):
                raise TypeError(f"`{name}` was given twice")
            given[at] = argument
        for at, _ in self._scalars:
            if given[at] is None:
                raise TypeError(f"`{self.__name__}` needs `{self._names[at]}`, which was not given")
        return tuple(given)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if len(args) == self._plain and not named:
            try:
                return self._native(*args)
            except VyreError as error:
                raise self._shown(error) from None
        bound: Sequence[Any]
        if self._quick is None or named:
            bound, by_name = self._bound(args, named)
        else:
            try:
                bound, by_name = self._quick(*args), {}
            except (AttributeError, OverflowError, TypeError, struct.error):
                # What does not fit is told of here.
                bound, by_name = self._bound(args, named)
        try:
            return self._native(*bound, **by_name)
        except VyreError as error:
            raise self._shown(error) from None

    def launch(self, *args: Any, **named: Any) -> Launch:
        """Starts the kernel and gives a handle that can be awaited, waited for, or cancelled."""
        bound, by_name = self._bound(args, named)
        try:
            return self._native.launch(*bound, **by_name)
        except VyreError as error:
            raise self._shown(error) from None

    def _shown(self, error: VyreError) -> VyreError:
        return shown_in_python(error, self._origins, self._barriers)

    def interpret(self, *args: Any, grid: int | tuple[int, ...] | None = None, **named: Any) -> None:
        """Runs the function as ordinary Python, once for every invocation, on NumPy arrays: slow, and open to any debugger. How many
        invocations run is asked of the engine, unless ``grid`` says how many workgroups."""
        native = self._native if grid is None else self._native[_reversed(grid)]
        args = self._in_order(args, named)
        if missing := [self._names[at] for at, *_ in self._arrays if args[at] is None]:
            raise TypeError(f"`interpret` needs `{missing[0]}`: results have to be given")
        bound, by_name = self._bound(args, {})
        workgroups, size, _ = native.plan_of(*bound, **by_name)
        arguments: list[Any] = []
        for argument, parameter in zip(args, self._parameters, strict=True):
            if isinstance(parameter.type, ArrayType):
                if not isinstance(argument, np.ndarray):
                    raise TypeError(f"`interpret` works on NumPy arrays, and `{parameter.name}` is a {type(argument).__name__}")
                arguments.append(Checked(parameter.name, argument))
            else:
                # An i32 is Python's own integer, as ids are; other numbers have their width.
                arguments.append(int(argument) if parameter.type is I32 else parameter.type(argument))
        run(self.function, arguments, tuple(reversed(workgroups)), tuple(reversed(size)), bool(self._barriers))  # type: ignore[arg-type]

    # Kernels like this one.

    def _with(self, native: Kernel) -> PythonKernel:
        return PythonKernel(native, self._parameters, self._origins, self._barriers, self.__name__, self._module, self._function)

    def __getitem__(self, grid: int | tuple[int, ...]) -> PythonKernel:
        """The kernel with this many workgroups, the last axis the fastest: ``kernel[64](…)``, ``kernel[rows, columns](…)``."""
        return self._with(self._native[_reversed(grid)])

    def domain(self, *extents: int) -> PythonKernel:
        """The kernel with so many invocations that have something to do, per axis."""
        return self._with(self._native.domain(*_reversed(extents)))

    def on(self, device: str) -> PythonKernel:
        """The kernel on one device and no other."""
        return self._with(self._native.on(device))

    def timeout(self, seconds: float) -> PythonKernel:
        """The kernel with a limit, in seconds, for each of its launches."""
        return self._with(self._native.timeout(seconds))

    # What it is.

    @property
    def name(self) -> str:
        return self.__name__

    @property
    def math(self) -> Math:
        """Its arithmetic: ``exact`` or ``fast``."""
        return self._native.math

    @property
    def source(self) -> str:
        """The WGSL that was made of the function."""
        return self._native.source

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself. In another process it is imported from its module."""
        if self._function is None:
            found: Any = getattr(importlib.import_module(self._module), self.__name__)
            self._function = getattr(found, "__wrapped__", found)
        return self._function

    def _for_native(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Kernel, list[Any], dict[str, Any]]:
        """The kernel of the generated text, and the arguments that a call would give it."""
        return (self._native, *self._bound(args, named))

    def _explain(self) -> str:
        return self._native._explain()

    def _explain_text(self) -> str:
        return self._native._explain_text()

    def __repr__(self) -> str:
        shown = ", ".join(f"{p.name}: {p.type!r}" for p in self._parameters)
        return f"<vyre.kernel {self.__name__}({shown})>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Constants from outside stand in the text, so that nothing else has to travel.
        state = (self._native, self._parameters, self._origins, self._barriers, self.__name__, self._module, None)
        return PythonKernel, state


def _reversed(extents: int | tuple[int, ...]) -> tuple[int, ...]:
    return (extents,) if isinstance(extents, int) else tuple(reversed(extents))


def _check_number(parameter: Parameter, argument: Any) -> None:
    assert isinstance(parameter.type, Scalar)
    try:
        struct.pack(f"={_FORMATS[parameter.type.name]}", argument)
    except OverflowError as error:
        raise OverflowError(f"`{parameter.name}` is {parameter.type.name}, and {argument!r} was given: {error}") from None
    except struct.error as error:
        raise TypeError(f"`{parameter.name}` is {parameter.type.name}, and {argument!r} was given: {error}") from None


def shown_in_python(error: VyreError, origins: list[Origin | None], barriers: list[Origin]) -> VyreError:
    """An error of the generated text, shown where it comes from."""
    shown, place = [], None
    for code, message, fix, where in error.all:
        origin = origins[where[0] - 1] if where is not None and where[0] <= len(origins) else None
        if where is None and code == "V0115" and barriers:
            origin = barriers[0]
        if origin is None:
            shown.append(f"error[{code}]: {message}\n  Fix: {fix}")
            continue
        place = place or origin.place
        shown.append(f"error[{code}]: {message}\n{origin.shown}\n  Fix: {fix}")
    if place is None:
        return error
    found = KernelError(error.code, error.message, error.fix, "\n".join(shown), place)
    found.all = error.all
    return found


def _make(function: Callable[..., Any], workgroup: int | tuple[int, ...] | None, math: Math) -> PythonKernel:
    size = (workgroup,) if isinstance(workgroup, int) else workgroup
    if size is not None and not (1 <= len(size) <= 3 and all(isinstance(n, int) and n > 0 for n in size)):
        raise TypeError(f"a workgroup has one to three axes of at least one invocation, not {workgroup!r}")
    unit, text, places = translate(function, tuple(size) if size is not None else None)
    origins = [Origin(where.place(node), where.show(node)) if (where, node) != (None, None) else None for where, node in map(_pair, places)]
    barriers = [origin for origin, line in zip(origins, text.splitlines(), strict=True) if origin and "workgroupBarrier();" in line]
    try:
        native = Kernel(text, math=math)
    except VyreError as error:
        raise shown_in_python(error, origins, barriers) from None
    return PythonKernel(native, unit.parameters, origins, barriers, function.__name__, function.__module__, function)


def _pair(place: tuple[Source, ast.AST] | None) -> tuple[Any, Any]:
    return place if place is not None else (None, None)


@overload
def kernel(function: Callable[..., Any]) -> PythonKernel: ...
@overload
def kernel(*, workgroup: int | tuple[int, ...] | None = None, math: Math = "exact") -> Callable[[Callable[..., Any]], PythonKernel]: ...
def kernel(
    function: Callable[..., Any] | None = None, *, workgroup: int | tuple[int, ...] | None = None, math: Math = "exact"
) -> PythonKernel | Callable[[Callable[..., Any]], PythonKernel]:
    """Makes a kernel of a function. Its parameters are annotated: arrays as ``vyre.f32[:]`` or ``vyre.f32[:, :]``, numbers as
    ``vyre.f32``, ``vyre.i32``, ``vyre.u32`` or ``vyre.bool_``. Results are written into arrays.

    ``workgroup`` is the number of invocations that share ``vyre.shared`` memory and meet at ``vyre.barrier()``, the last axis the fastest.
    ``math="fast"`` lets devices round as WGSL allows: ``a * b + c`` once, functions as their own approximations, subnormal numbers as zero. Sums
    keep their order. Without it results have the same bits everywhere.
    """
    if function is not None:
        return _make(function, workgroup, math)
    return lambda function: _make(function, workgroup, math)


def function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function that kernels call. It stays an ordinary function; the mark is for readers."""
    return function
