"""Every piece of Python in the pages and the notebook runs as it stands there."""

import importlib.util
import json
import linecache
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vyre

ROOT = Path(__file__).parents[2]


def blocks(page):
    """Blocks of Python of a page: what stands behind the word `python`, the text, and the line where it begins."""
    for found in re.finditer(r"^```python(.*)\n((?:.*\n)*?)```$", page.read_text(encoding="utf-8"), re.M):
        yield found[1].strip(), found[2], page.read_text(encoding="utf-8")[: found.start(2)].count("\n")


def run_block(text, name, line, scope):
    # The blank lines make the lines of an error those of the page.
    text = "\n" * line + text
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "python/README.md"])
def test_pages(page):
    scope = {"__name__": "page"}
    ran = 0
    for needs, text, line in blocks(ROOT / page):
        if needs and importlib.util.find_spec(needs) is None:
            pytest.skip(f"{needs} is not installed")
        run_block(text, f"{page}:{line}", line, scope)
        ran += 1
    assert ran


def test_notebook():
    notebook = json.loads((ROOT / "docs" / "python.ipynb").read_text(encoding="utf-8"))
    scope = {"__name__": "notebook"}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            *statements, last = "".join(cell["source"]).rsplit("\n", 1)
            run_block("".join(statements), f"cell {number}", 0, scope)
            # The last line of a cell is shown, where it is an expression.
            try:
                shown = eval(last, scope)
            except SyntaxError:
                run_block(last, f"cell {number} end", 0, scope)
                continue
            if hasattr(shown, "_repr_html_"):
                assert shown._repr_html_().startswith("<")


def test_the_example_on_disk():
    pytest.importorskip("dask")
    pytest.importorskip("distributed")
    paths = os.pathsep.join([str(Path(vyre.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, str(ROOT / "examples" / "out_of_core.py"), "1500", "1200", "2"]
    ended = subprocess.run(words, text=True, capture_output=True, timeout=240, env={**os.environ, "PYTHONPATH": paths})
    assert ended.returncode == 0, ended.stderr
    assert "1500 x 1200: mean 0.5" in ended.stdout
