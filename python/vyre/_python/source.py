"""Where a kernel's text stands, and how its mistakes are shown there."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from ..errors import KernelError

#: The code of what a Python function says that no kernel can.
UNSUPPORTED = "V0403"
#: The code of names and types that don't fit together.
MISTAKE = "V0401"


class Problem(Exception):
    """A mistake at a node of a function. The place is filled in on the way up, where it is known."""

    def __init__(self, message: str, fix: str, node: ast.AST | None = None, code: str = MISTAKE) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.node = node
        self.code = code
        self.source: Source | None = None


class Unsupported(Problem):
    """Something of Python that kernels don't have."""

    def __init__(self, what: str, fix: str, node: ast.AST | None = None) -> None:
        super().__init__(f"{what} can't be in a kernel", fix, node, UNSUPPORTED)


class Source:
    """The text of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self.file = inspect.getsourcefile(function) or "<unknown>"
        try:
            lines, self.first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise KernelError(
                UNSUPPORTED,
                f"the source of `{self.name}` can't be read",
                "Write the kernel in a file or a notebook; `vyre.wgsl` takes texts.",
            ) from None
        text = "".join(lines)
        self.lines = text.splitlines()
        dedented = textwrap.dedent(text)
        self.indent = len(self.lines[0]) - len(dedented.splitlines()[0]) if self.lines else 0
        tree = ast.parse(dedented).body[0]
        if not isinstance(tree, ast.FunctionDef):
            what = "an `async` function" if isinstance(tree, ast.AsyncFunctionDef) else "this"
            raise KernelError(UNSUPPORTED, f"{what} can't be a kernel", "Write it as `def name(…):`.")
        self.tree = tree

    def line(self, node: ast.AST) -> int:
        """The line of a node in its file."""
        return self.first + int(getattr(node, "lineno", 1)) - 1

    def show(self, node: ast.AST | None) -> str:
        """A node's place and line, with a mark below."""
        node = node if node is not None and hasattr(node, "lineno") else self.tree
        line = int(getattr(node, "lineno", 1))
        shown = f'  File "{self.file}", line {self.line(node)}, in {self.name}'
        if line > len(self.lines):
            return shown
        text = self.lines[line - 1]
        start = int(getattr(node, "col_offset", 0)) + self.indent
        end = int(getattr(node, "end_col_offset", 0) or 0) + self.indent
        if getattr(node, "end_lineno", line) != line or end <= start:
            end = len(text)
        # Columns of the tree count bytes.
        raw = text.encode()
        before, marked = raw[:start].decode(errors="ignore"), raw[start:end].decode(errors="ignore")
        lead = len(text) - len(text.lstrip())
        return f"{shown}\n    {text.strip()}\n    {' ' * (len(before) - lead)}{'^' * max(len(marked), 1)}"

    def place(self, node: ast.AST | None) -> tuple[int, int]:
        """Line and column in the file, both from one."""
        node = node if node is not None and hasattr(node, "lineno") else self.tree
        return self.line(node), int(getattr(node, "col_offset", 0)) + self.indent + 1


def error_of(problems: list[Problem], fallback: Source) -> KernelError:
    """All mistakes of a kernel as one exception."""
    shown = []
    for problem in problems:
        source = problem.source or fallback
        shown.append(f"error[{problem.code}]: {problem.message}\n{source.show(problem.node)}\n  Fix: {problem.fix}")
    first = problems[0]
    place = (first.source or fallback).place(first.node)
    error = KernelError(first.code, first.message, first.fix, "\n".join(shown), place)
    error.all = [(p.code, p.message, p.fix, (p.source or fallback).place(p.node)) for p in problems]
    return error
