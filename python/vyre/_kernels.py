"""Kernels from texts and files, and how they travel between processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from ._vyre import Kernel, __version__

Math = Literal["exact", "fast"]


def wgsl(source: str | os.PathLike[str], entry: str | None = None, *, math: Math = "exact", **constants: Any) -> Kernel:
    """A kernel of a WGSL text, or of the file that a path names.

    ``entry`` names the entry point where there are several. Constants (WGSL's ``override``) are set by name. ``math="fast"`` lets devices
    round as WGSL allows, instead of giving the same bits everywhere.

    >>> import numpy, vyre
    >>> double = vyre.wgsl('''
    ... @group(0) @binding(0) var<storage, read> a: array<f32>;
    ... @group(0) @binding(1) var<storage, read_write> out: array<f32>;
    ... @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    ...     if id.x < arrayLength(&a) { out[id.x] = 2.0 * a[id.x]; }
    ... }''')
    >>> double(numpy.array([1, 2, 3], numpy.float32)).tolist()
    [2.0, 4.0, 6.0]
    """
    file = None
    if isinstance(source, os.PathLike):
        file = os.fspath(source)
        source = Path(source).read_text(encoding="utf-8")
    kernel = Kernel(source, entry, file, math=math)
    return kernel.set(**constants) if constants else kernel


def restore(
    version: str,
    source: str,
    entry: str | None,
    file: str | None,
    math: Math,
    constants: dict[str, Any],
    device: str | None,
    grid: tuple[int, int, int] | None,
    domain: tuple[int, int, int] | None,
    timeout: float | None,
) -> Kernel:
    """A kernel that was pickled. The worker's vyre compiles it, or finds it in its cache."""
    if version != __version__:
        raise RuntimeError(f"this kernel was sent by vyre {version}, and here is vyre {__version__}; install the same everywhere")
    kernel = Kernel(source, entry, file, math=math)
    if constants:
        kernel = kernel.set(**constants)
    if device is not None:
        kernel = kernel.on(device)
    if grid is not None:
        kernel = kernel[grid]
    if domain is not None:
        kernel = kernel.domain(*domain)
    if timeout is not None:
        kernel = kernel.timeout(timeout)
    return kernel
