"""Warm packs: what was compiled and decided here, for other machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from . import _vyre


class PackReport(NamedTuple):
    """What went into a pack or came out of it."""

    pipelines: int
    decisions: int
    routes: bool


def export_pack(path: str | os.PathLike[str], key: bytes | None = None) -> PackReport:
    """Writes everything that was compiled, decided and learnt into one file. With a secret ``key`` of 32 bytes only its holders can make
    a pack that is taken in with it."""
    pack, report = _vyre.export_pack(_checked(key))
    # Whole or not at all: a pack is read by other processes.
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_bytes(pack)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return PackReport(*report)


def import_pack(path: str | os.PathLike[str], key: bytes | None = None) -> PackReport:
    """Takes in a pack, after checking every record of it. What is in it is executed later, so take in without a key only what you trust."""
    return PackReport(*_vyre.import_pack(Path(path).read_bytes(), _checked(key)))


def _checked(key: bytes | None) -> bytes | None:
    if key is not None and len(key) != 32:
        raise ValueError(f"a key has 32 bytes, not {len(key)}")
    return key
