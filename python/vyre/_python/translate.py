"""A function's statements as WGSL."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

from .expressions import Expressions
from .language import static_range
from .scopes import Scopes
from .source import Problem, Source, Unsupported, error_of
from .types import BOOL, I32, U32, Scalar, scalar_of
from .unit import Line, Unit, parameters_of, safe
from .values import Array, Value, as_type, binary, settled, truth, unsigned

_REFUSED: dict[type[ast.stmt], tuple[str, str]] = {
    ast.With: ("`with`", "Write what it would do."),
    ast.Try: ("`try`", "Test for what could go wrong with `if`."),
    ast.Raise: ("`raise`", "Write a number that says what happened into an array."),
    ast.Assert: ("`assert`", "Test it before the call, or write a flag into an array."),
    ast.Import: ("`import`", "Import at the top of the file."),
    ast.ImportFrom: ("`import`", "Import at the top of the file."),
    ast.Global: ("`global`", "Pass an array, and write to it."),
    ast.Nonlocal: ("`nonlocal`", "Pass an array, and write to it."),
    ast.Delete: ("`del`", "Leave the variable; it costs nothing."),
    ast.FunctionDef: ("a function inside a function", "Write it at the top of the file, and call it."),
    ast.ClassDef: ("a class", "Use numbers and arrays."),
    ast.AsyncFor: ("`async`", "Await the launch instead: `await kernel.launch(…)`."),
    ast.Match: ("`match`", "Write `if` and `elif`."),
}


#: Rounds of a loop that is written out: each is as much text as the body.
MOST_ROUNDS = 64

#: Ids, numbers that are passed, and lengths of arrays.
_FIXED = re.compile(r"i32\(vy_\w+_id\.[xyz]\)|i32\(vy_num_workgroups\.[xyz]\)|vy_args\.\w+|i32\(arrayLength\(&\w+\)\)")


class Function(Expressions):
    """One function while it is translated. The kernel itself is one, and each helper for each combination of argument types."""

    def __init__(self, unit: Unit, function: Callable[..., Any], source: Source, is_kernel: bool) -> None:
        super().__init__(unit, function, source, is_kernel)
        self.scopes = Scopes(source.tree)
        self.lines: list[Line] = []
        self.depth = 1
        self.returns: Scalar | None = None
        self.returned: ast.AST | None = None
        self.loops = 0

    def emit(self, text: str, node: ast.AST) -> None:
        self.lines.append((self.depth, text, self.source, node))

    def body(self) -> tuple[list[Line], bool]:
        """All statements, with the variables that more than one block needs before them; and whether their end can be reached."""
        reached = self.block(self.source.tree.body)
        head: list[Line] = [(1, text, self.source, self.source.tree) for text in self.hoisted.values()]
        return head + self.lines, reached

    # Statements. Each says whether what follows it can be reached.

    def block(self, statements: list[ast.stmt]) -> bool:
        for position, statement in enumerate(statements):
            try:
                reached = self.statement(statement)
            except Problem as problem:
                self.note(problem, statement)
                self.poison(statement)
                continue
            if not reached:
                if position + 1 < len(statements):
                    # Python allows it; WGSL would warn or refuse, and it never runs.
                    self.translate_unreached(statements[position + 1 :])
                return False
        return True

    def translate_unreached(self, statements: list[ast.stmt]) -> None:
        kept, known = self.lines, set(self.assigned)
        self.lines = []
        self.block(statements)
        self.lines, self.assigned = kept, known

    def note(self, problem: Problem, node: ast.AST) -> None:
        problem.source = problem.source or self.source
        problem.node = problem.node or node
        if problem.message:
            self.unit.problems.append(problem)

    def poison(self, statement: ast.stmt) -> None:
        """What a wrong statement would have assigned is not reported again."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in self.types:
                self.poisoned.add(node.id)
                self.assigned.add(node.id)

    def statement(self, node: ast.stmt) -> bool:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            what, fix = _REFUSED.get(type(node), (f"`{type(node).__name__}`", "Write it with assignments, `if`, `for` and `while`."))
            raise Unsupported(what, fix, node)
        return method(node) is not False

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, (str, type(...))):
            return
        if not isinstance(node.value, ast.Call):
            raise Problem("this has no effect", "Assign it, or leave it out.", node)
        text = self.call_statement(node.value)
        if text:
            self.emit(f"{text};", node)

    def do_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            made = self.array_made(node.value, node.targets[0].id)
            if made is not None:
                self.new_array(node.targets[0].id, made, node)
                return
        if len(node.targets) == 1 and isinstance(node.targets[0], (ast.Tuple, ast.List)):
            self.unpack(node.targets[0], node.value)
            return
        value = self.value(node.value)
        if len(node.targets) > 1 and not (value.constant is not None or isinstance(node.value, ast.Name)):
            value = self.temporary(value, node)
        for target in node.targets:
            self.assign(target, value)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        kind = scalar_of(self.resolve(node.annotation))
        if kind is None:
            raise Problem("this is no type of kernels", "Write vyre.f32, vyre.i32, vyre.u32 or vyre.bool_.", node.annotation)
        if node.value is None:
            raise Problem("a variable without a value", "Assign one: `x: vyre.f32 = 0.0`.", node)
        self.assign(node.target, as_type(self.value(node.value), kind, "the variable"))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            before = self.value(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
        else:
            before = self.element(node.target) if isinstance(node.target, ast.Subscript) else self.value(node.target)
            if not before.pure and not self.is_atomic(node.target):
                raise Problem("the place that is changed is itself computed by a change", "Assign the index to a variable first.", node)
        self.assign(node.target, binary(node.op, before, self.value(node.value), self.unit.helpers))

    def unpack(self, target: ast.Tuple | ast.List, given: ast.expr) -> None:
        names = target.elts
        if isinstance(given, (ast.Tuple, ast.List)):
            values = [self.value(part) for part in given.elts]
        else:
            values = self.several(given)
        if len(values) != len(names):
            raise Problem(f"{len(values)} values for {len(names)} names", "Name as many as there are.", target)
        # Python computes all of them before it assigns the first.
        if not all(value.constant is not None or self.is_fixed(value) for value in values):
            values = [self.temporary(value, target) for value in values]
        for name, value in zip(names, values, strict=True):
            self.assign(name, value)

    def is_fixed(self, value: Value) -> bool:
        """Nothing that is assigned changes it."""
        return _FIXED.fullmatch(value.text) is not None

    def temporary(self, value: Value, node: ast.AST) -> Value:
        value = settled(value)
        name = self.unit.unique("vy_t")
        self.emit(f"let {name} = {value.text};", node)
        return Value(name, value.type, value.constant, value.natural)

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Subscript):
            self.store(target, value)
            return
        if not isinstance(target, ast.Name):
            what = "an attribute" if isinstance(target, ast.Attribute) else "this target"
            raise Unsupported(f"assigning to {what}", "Assign to a variable, or to an element of an array.", target)
        name = target.id
        if name in self.arrays:
            raise Problem(f"`{name}` is an array", f"Write `{name}[i] = …`.", target)
        if name in self.loop_types or name in self.scopes.loop_variables:
            raise Problem(f"`{name}` is the variable of a loop", "Use another name, or a `while` loop.", target)
        if name not in self.types:
            value = settled(value)
            assert value.type is not None
            self.types[name] = (value.type, target)
            if self.scopes.is_single(name, target):
                self.emit(f"let {safe(name)} = {value.text};", target)
                self.naturals[name] = value.natural
                self.unsigned[name] = unsigned(value) if value.natural and self.is_fixed(value) else ""
                self.assigned.add(name)
                return
            self.hoisted.setdefault(name, f"var {safe(name)}: {value.type.name};")
        kind, first = self.types[name]
        if value.type is not None and value.type is not kind:
            raise Problem(
                f"`{name}` is {kind.name} since line {self.source.line(first)}, and this is {value.type.name}",
                f"Convert it: `vyre.{kind.name}(…)`, or use another name.",
                target,
            )
        value = as_type(value, kind, f"`{name}`")
        self.emit(f"{safe(name)} = {value.text};", target)
        self.assigned.add(name)

    def new_array(self, name: str, array: Array, node: ast.Assign) -> None:
        if name in self.types or name in self.arrays:
            raise Problem(f"`{name}` already is something else", "Give the array a name of its own.", node.targets[0])
        if self.depth > 1 and array.kind == "shared":
            raise Problem("workgroup memory that only some may make", "Make it at the top of the function.", node)
        self.arrays[name] = array
        self.assigned.add(name)
        if array.kind == "local":
            count = 1
            for extent in array.extents:
                count *= int(extent)
            # A variable at the top, so that its name reaches as far as Python's; zeros each time that the statement runs.
            self.hoisted[f"array {name}"] = f"var {array.name}: array<{array.element.name}, {count}>;"
            self.emit(f"{array.name} = array<{array.element.name}, {count}>();", node)

    def store(self, target: ast.Subscript, value: Value) -> None:
        array, index = self.place(target)
        value = as_type(value, array.element, f"an element of `{self.shown_array(array)}`")
        self.changed(array)
        if self.is_atomic_array(array):
            self.emit(f"atomicStore(&{array.name}[{index}], {value.text});", target)
        else:
            base = f"(*{array.name})" if array.kind == "pointer" else array.name
            self.emit(f"{base}[{index}] = {value.text};", target)

    def do_If(self, node: ast.If) -> bool:
        condition = truth(self.value(node.test))
        if condition.constant is not None:
            # Known before the kernel runs: the other branch is not translated, as it would never run.
            return self.block(node.body if condition.constant else node.orelse)
        before = set(self.assigned)
        kept, self.lines = self.lines, []
        reached_then = self.nested(node.body)
        body, self.lines = self.lines, kept
        if self.is_rest(node) and not any("Barrier(" in line[1] for lines in [body, *self.unit.functions] for line in lines):
            # Invocations without work leave first: what is behind them needs no masks on a processor.
            self.emit(f"if !{condition.text} {{ return; }}", node.test)
            self.emit("{", node)
        else:
            self.emit(f"if {condition.text} {{", node.test)
        self.lines += body
        after_then, self.assigned = self.assigned, set(before)
        reached_else = True
        if node.orelse:
            self.emit("} else {", node.orelse[0])
            reached_else = self.nested(node.orelse)
        self.emit("}", node)
        after_else = self.assigned
        if reached_then and reached_else:
            self.assigned = after_then & after_else
        elif reached_then:
            self.assigned = after_then
        return reached_then or reached_else

    def is_rest(self, node: ast.If) -> bool:
        """It is the last statement of the kernel, and has one branch."""
        return self.is_kernel and not node.orelse and node is self.source.tree.body[-1]

    def nested(self, statements: list[ast.stmt]) -> bool:
        self.depth += 1
        try:
            return self.block(statements)
        finally:
            self.depth -= 1

    def loop(self, statements: list[ast.stmt]) -> None:
        before = set(self.assigned)
        self.loops += 1
        self.nested(statements)
        self.loops -= 1
        self.assigned = before

    def do_While(self, node: ast.While) -> bool:
        if node.orelse:
            raise Unsupported("`else` of a loop", "Set a flag in the loop, and test it after.", node.orelse[0])
        condition = truth(self.value(node.test))
        if condition.constant is not None and not condition.constant:
            return True
        self.emit("loop {" if condition.constant else f"while {condition.text} {{", node)
        self.loop(node.body)
        self.emit("}", node)
        endless = condition.constant is not None and not _breaks(node.body)
        return not endless

    def do_For(self, node: ast.For) -> bool:
        if node.orelse:
            raise Unsupported("`else` of a loop", "Set a flag in the loop, and test it after.", node.orelse[0])
        over = self.resolve_or_none(node.iter.func) if isinstance(node.iter, ast.Call) else None
        if not (over is range or over is static_range) or not isinstance(node.iter, ast.Call):
            raise Unsupported("a loop over this", "Loop over `range(…)`, and take elements by index.", node.iter)
        if not isinstance(node.target, ast.Name):
            raise Unsupported("a loop with several variables", "Loop over `range(…)` with one.", node.target)
        name = node.target.id
        if name in self.types or name in self.arrays:
            raise Problem(f"`{name}` is assigned elsewhere", "Give the loop a variable of its own.", node.target)
        bounds = [self.value(part) for part in node.iter.args]
        if node.iter.keywords or not 1 <= len(bounds) <= 3:
            raise Problem(
                "`range` takes one to three numbers", "Write range(stop), range(start, stop) or range(start, stop, step).", node.iter
            )
        if name in self.loop_types or name in self.rounds:
            raise Problem(f"`{name}` is the variable of a loop around this one, too", "Give each loop a variable of its own.", node.target)
        if over is static_range:
            return self.written_out(node, name, [bound.constant for bound in bounds])
        step = bounds[2] if len(bounds) == 3 else Value("", None, 1)
        if not isinstance(step.constant, int) or step.constant == 0:
            raise Unsupported("a step that is not a constant integer other than zero", "Write a `while` loop.", node.iter)
        start, stop = (Value("", None, 0, natural=True), bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        for bound in (start, stop):
            if bound.type is BOOL or (bound.type is not None and bound.type.is_float) or isinstance(bound.constant, float):
                raise Problem(f"`range` of {bound.shown}", "Convert it: `int(…)`.", node.iter)
        kinds = {bound.type for bound in (start, stop) if bound.type is not None}
        if len(kinds) > 1:
            raise Problem("`range` from an i32 to a u32, or back", "Convert one of them: `vyre.i32(…)`.", node.iter)
        kind = kinds.pop() if kinds else I32
        start, stop = as_type(start, kind, "the start"), as_type(stop, kind, "the stop")
        down = step.constant < 0
        if down and kind is not I32:
            raise Problem("a loop downwards over u32", "Convert the bounds: `vyre.i32(…)`.", node.iter)
        end = stop.text
        if stop.constant is None and not self.is_fixed(stop):
            end = self.temporary(stop, node.iter).text
        variable = safe(name)
        change = f"{variable} {'-' if down else '+'}= {abs(step.constant)}{'u' if kind is not I32 else 'i'}"
        self.emit(f"for (var {variable}: {kind.name} = {start.text}; {variable} {'>' if down else '<'} {end}; {change}) {{", node)
        self.loop_types[name] = (kind, start.natural and not down)
        self.loop(node.body)
        del self.loop_types[name]
        self.emit("}", node)
        return True

    def written_out(self, node: ast.For, name: str, bounds: list[Any]) -> bool:
        """A loop of `static_range`: its body once for each round, in which its variable is a constant."""
        if not all(type(bound) is int for bound in bounds) or bounds[2:] == [0]:
            raise Unsupported("`static_range` of something that is not a constant integer", "Loop over `range(…)`.", node.iter)
        rounds = range(*bounds)
        if len(rounds) > MOST_ROUNDS:
            raise Unsupported(
                f"`static_range` of {len(rounds)} rounds, of which {MOST_ROUNDS} are the most,", "Loop over `range(…)`.", node
            )
        if _leaves(node.body):
            raise Unsupported("`break` or `continue` in a loop of `static_range`", "Loop over `range(…)`, or use `if`.", node)
        types, problems = set(self.types), len(self.unit.problems)
        for value in rounds:
            arrays = set(self.arrays)
            self.emit("{", node)
            self.rounds[name] = value
            reached = self.nested(node.body)
            del self.rounds[name]
            self.emit("}", node)
            # A mistake is the same in all rounds.
            if not reached or len(self.unit.problems) > problems:
                return reached
            # What is made in a round is made anew in the next one.
            for made in [made for made in self.types if made not in types and made not in self.hoisted]:
                del self.types[made]
                self.assigned.discard(made)
            if value != rounds[-1]:
                self.arrays = {known: array for known, array in self.arrays.items() if known in arrays}
        return True

    def do_Break(self, node: ast.Break) -> bool:
        self.emit("break;", node)
        return False

    def do_Continue(self, node: ast.Continue) -> bool:
        self.emit("continue;", node)
        return False

    def do_Return(self, node: ast.Return) -> bool:
        if self.is_kernel:
            if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
                raise Problem("a kernel gives nothing back", "Write results into an array.", node)
            self.emit("return;", node)
            return False
        if node.value is None:
            if self.returns is not None:
                raise Problem("this gives nothing back, and another `return` does", "Give a number back in both.", node)
            self.returned = node
            self.emit("return;", node)
            return False
        if isinstance(node.value, (ast.Tuple, ast.List)):
            raise Unsupported(
                "giving several numbers back", "Write them into a `vyre.local` array that is passed, or use two functions.", node
            )
        value = self.value(node.value)
        if self.returns is None:
            if self.returned is not None:
                raise Problem("this gives a number back, and another `return` nothing", "Give a number back in both.", node)
            value = settled(value)
            self.returns, self.returned = value.type, node
        assert self.returns is not None
        self.emit(f"return {as_type(value, self.returns, 'what the function gives back').text};", node)
        return False


def _breaks(statements: list[ast.stmt]) -> bool:
    """Whether a `break` among these statements ends the loop around them."""
    for statement in statements:
        if isinstance(statement, ast.Break):
            return True
        if isinstance(statement, ast.If) and (_breaks(statement.body) or _breaks(statement.orelse)):
            return True
    return False


def _leaves(statements: list[ast.stmt]) -> bool:
    """Whether a `break` or `continue` among these statements is of the loop around them."""
    for statement in statements:
        if isinstance(statement, (ast.Break, ast.Continue)):
            return True
        if isinstance(statement, ast.If) and (_leaves(statement.body) or _leaves(statement.orelse)):
            return True
    return False


def translate(function: Callable[..., Any], workgroup: tuple[int, ...] | None) -> tuple[Unit, str, list[tuple[Source, ast.AST] | None]]:
    """The WGSL of a kernel, and where each of its lines comes from. All mistakes that are found are raised together."""
    source = Source(function)
    parameters = parameters_of(function, source)
    # The first time tells what is atomic, and what is both read and written; the second writes the text that follows from it.
    unit = Unit(parameters, workgroup)
    _translate_kernel(unit, function, source)
    final = Unit(parameters, workgroup, frozenset(unit.found_atomic), bool(unit.found_atomic or unit.read & unit.written))
    body = _translate_kernel(final, function, source)
    return final, *final.assemble(body, source)


def _translate_kernel(unit: Unit, function: Callable[..., Any], source: Source) -> list[Line]:
    kernel = Function(unit, function, source, is_kernel=True)
    for parameter in unit.parameters:
        if isinstance(parameter.type, Scalar):
            text = f"vy_args.{safe(parameter.name)}"
            if parameter.type is BOOL:
                text = f"({text} != 0u)"
            kernel.parameter(parameter.name, parameter.type, text, parameter.type is U32)
    body, _ = kernel.body()
    if unit.problems:
        raise error_of(unit.problems, source)
    return body


def translate_helper(unit: Unit, function: Callable[..., Any], bound: inspect.BoundArguments) -> tuple[str, Scalar | None, bool]:
    """A function for arguments of these types: its name in WGSL, the type of what it gives, and whether it changes memory."""
    parts: list[Any] = []
    for argument in bound.arguments.values():
        if not isinstance(argument, Array):
            parts.append((argument.type, argument.natural))
        elif argument.kind in ("local", "pointer"):
            parts.append((argument.element, argument.extents))
        else:
            parts.append((argument.name, argument.extents))
    key = (function, tuple(parts))
    if key in unit.known:
        return unit.known[key]
    source = Source(function)
    if any(function is other for other in unit.under_way):
        raise Unsupported(f"a function that calls itself, as `{source.name}` does,", "Write a loop.")
    unit.under_way.append(function)
    translated = Function(unit, function, source, is_kernel=False)
    parameters = []
    for name, argument in bound.arguments.items():
        if isinstance(argument, Array):
            if argument.kind in ("local", "pointer"):
                count = 1
                for extent in argument.extents:
                    count *= int(extent)
                pointer = f"vy_p_{name}"
                parameters.append(f"{pointer}: ptr<function, array<{argument.element.name}, {count}>>")
                translated.arrays[name] = Array(pointer, argument.element, argument.extents, "pointer")
            else:
                translated.arrays[name] = argument
            translated.assigned.add(name)
            continue
        parameters.append(f"vy_p_{name}: {argument.type.name}")
        translated.parameter(name, argument.type, f"vy_p_{name}", argument.natural)
    wgsl = unit.unique(source.name)
    reached_before = len(unit.problems)
    body, reached = translated.body()
    if translated.returns is not None and reached and len(unit.problems) == reached_before:
        problem = Problem(f"`{source.name}` may end without giving a number back", "Write a `return` at its end.", translated.returned)
        translated.note(problem, source.tree)
    unit.under_way.pop()
    result = f" -> {translated.returns.name}" if translated.returns is not None else ""
    opening: Line = (0, f"fn {wgsl}({', '.join(parameters)}){result} {{", source, source.tree)
    unit.functions.append([opening, *body, (0, "}", source, source.tree)])
    unit.known[key] = (wgsl, translated.returns, translated.changes)
    return unit.known[key]
