"""Parts of arrays: ``x[2:5]``, ``x[:, 0]``, ``x[-1]``."""

from __future__ import annotations

import operator
from typing import Any


def resolved(key: Any, shape: tuple[int, ...]) -> tuple[list[tuple[int, int, int]], list[int]] | None:
    """The positions along each axis as start, end and step, and the shape of the part. ``None`` where a key is more than indices and slices
    that go forwards."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if not all(one is None or one is Ellipsis or isinstance(one, slice) or _is_index(one) for one in keys):
        return None
    named = sum(one is not None and one is not Ellipsis for one in keys)
    if named > len(shape):
        raise IndexError(f"an array of {len(shape)} axes has no element or part {key!r}")
    dots = [at for at, one in enumerate(keys) if one is Ellipsis]
    if len(dots) > 1:
        raise IndexError("`...` may stand once")
    at = dots[0] if dots else len(keys)
    keys[at : at + 1] = [slice(None)] * (len(shape) - named)
    ranges: list[tuple[int, int, int]] = []
    part: list[int] = []
    for one in keys:
        if one is None:
            part.append(1)
            continue
        extent = shape[len(ranges)]
        if isinstance(one, slice):
            start, end, step = one.indices(extent)
            if step < 0:
                return None
            end = max(start, end)
            ranges.append((start, end, step))
            part.append(len(range(start, end, step)))
        else:
            index = operator.index(one)
            if not -extent <= index < extent:
                raise IndexError(f"{index} is not within an axis of {extent}")
            ranges.append((index % extent, index % extent + 1, 1))
    return ranges, part


def _is_index(key: Any) -> bool:
    return not isinstance(key, bool) and hasattr(key, "__index__") and getattr(key, "shape", ()) == ()
