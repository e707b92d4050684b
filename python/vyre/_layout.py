"""Structs as bytes, with the layout of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def pack(name: str, dtype: np.dtype[Any], members: Mapping[str, Any] | tuple[Any, ...]) -> bytes:
    """The bytes of one struct. Every member has to be given, and no other."""
    value = np.zeros((), dtype)
    names = dtype.names or ()
    if isinstance(members, Mapping):
        if unknown := [key for key in members if key not in names]:
            raise TypeError(f"`{name}` has no member {unknown[0]!r}; it has {', '.join(names)}")
        if missing := [key for key in names if key not in members]:
            raise TypeError(f"`{name}` needs its member {missing[0]!r}, which was not given")
        for key, member in members.items():
            value[key] = member
    else:
        if len(members) != len(names):
            raise TypeError(f"`{name}` has {len(names)} members ({', '.join(names)}), but {len(members)} were given")
        for key, member in zip(names, members, strict=True):
            value[key] = member
    return value.tobytes()
