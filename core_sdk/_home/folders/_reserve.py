"""Room that a home keeps for deletions: these record what they delete before they free anything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from core_sdk._ground.files import is_full, write_atomically

_T = TypeVar("_T")

_SIZE_BYTES = 64 << 10


def with_reserve(home_root: Path, delete: Callable[[], _T]) -> _T:
    """Calls `delete`, which may be repeated, and once more with the reserve's room if the disk is full."""
    try:
        return delete()
    except OSError as error:
        if not is_full(error) or not _path(home_root).exists():
            raise
        _path(home_root).unlink()
    try:
        return delete()
    finally:
        fill_reserve(home_root)


def fill_reserve(home_root: Path) -> None:
    """Makes the reserve if there is none and the disk has room for it."""
    path = _path(home_root)
    if not path.exists():
        with contextlib.suppress(OSError):
            # Random, so that no file system can store it in less.
            write_atomically(path, os.urandom(_SIZE_BYTES), is_durable=False)


def _path(home_root: Path) -> Path:
    return home_root / "reserve"
