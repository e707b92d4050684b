"""Explanations: what runs where, and why."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from ._vyre import Kernel

if TYPE_CHECKING:
    from ._python.kernel import PythonKernel


class Explanation(dict[str, Any]):
    """What was chosen for a kernel's latest launch, what else was possible, and on what evidence: text, JSON, or a table in a notebook."""

    def __init__(self, kernel: Kernel | PythonKernel) -> None:
        super().__init__(json.loads(kernel._explain()))
        self._text = kernel._explain_text()

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for name, value in self.items():
            shown = value if isinstance(value, str) else json.dumps(value)
            rows.append(f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(shown)}</td></tr>")
        return f"<table>{''.join(rows)}</table>"


def explain(kernel: Kernel | PythonKernel) -> Explanation:
    """Explains the choices for a kernel: device, workgroup size, grid, and the evidence for each."""
    return Explanation(kernel)
