"""Types of numbers and arrays, as annotations, as conversions, and as WGSL names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ArrayType:
    """An array of so many axes, as in ``vyre.f32[:, :]``."""

    element: Scalar
    ndim: int

    def __repr__(self) -> str:
        return f"vyre.{self.element.name}[{', '.join(':' * self.ndim)}]"


@dataclass(frozen=True)
class Scalar:
    """A type of numbers: ``vyre.f32`` annotates a number, ``vyre.f32[:]`` an array of them, ``vyre.f32(x)`` converts one."""

    name: str
    dtype: str

    def __getitem__(self, axes: slice | tuple[slice, ...]) -> ArrayType:
        axes = axes if isinstance(axes, tuple) else (axes,)
        if not 1 <= len(axes) <= 4 or any(axis != slice(None) for axis in axes):
            raise TypeError(f"an array has one to four axes, each written as a colon: vyre.{self.name}[:], vyre.{self.name}[:, :]")
        return ArrayType(self, len(axes))

    def __call__(self, value: Any) -> Any:
        """The number in this type, as kernels convert it: to integers towards zero, to unsigned ones modulo 2³²."""
        if self is BOOL:
            return bool(value)
        if not self.is_integer:
            return np.dtype(self.dtype).type(value)
        low, high = (0, 2**32 - 1) if self is U32 else (-(2**31), 2**31 - 1)
        if isinstance(value, (float, np.floating)):
            # Conversions from floats stop at the ends; NaN gives zero.
            whole = 0 if value != value else int(max(min(float(value), float(high)), float(low)))
        else:
            whole = (int(value) - low) % 2**32 + low
        return np.dtype(self.dtype).type(whole)

    @property
    def is_integer(self) -> bool:
        return self.name in ("i32", "u32")

    @property
    def is_float(self) -> bool:
        return self.name in ("f32", "f16")

    def __repr__(self) -> str:
        return f"vyre.{self.name}"


F32 = Scalar("f32", "float32")
F16 = Scalar("f16", "float16")
I32 = Scalar("i32", "int32")
U32 = Scalar("u32", "uint32")
BOOL = Scalar("bool", "bool")

#: What else may stand for a type, in annotations and as conversions.
ALIASES: dict[Any, Scalar] = {
    float: F32,
    int: I32,
    bool: BOOL,
    np.float32: F32,
    np.float16: F16,
    np.int32: I32,
    np.uint32: U32,
    np.bool_: BOOL,
}


def scalar_of(annotation: Any) -> Scalar | None:
    """The type that an object stands for, where it does."""
    if isinstance(annotation, Scalar):
        return annotation
    try:
        return ALIASES.get(annotation)
    except TypeError:  # It has no hash, so it is none of them.
        return None
