"""Finds the files that a training leaves where the next training finds them."""

from __future__ import annotations

import os
from pathlib import Path

_MAX_FILES = 20_000


def files_below(directory: Path, *, without: Path) -> dict[Path, tuple[int, int]]:
    """Returns the size and the time of each file, as far as there are not too many.

    Hidden directories, caches of Python, environments and the directory `without` are left out.
    """
    found: dict[Path, tuple[int, int]] = {}
    for parent, directories, names in os.walk(directory):
        here = Path(parent)
        if here == without or "pyvenv.cfg" in names:
            directories.clear()
            continue
        directories[:] = [each for each in directories if not each.startswith(".") and each != "__pycache__"]
        for name in names:
            try:
                status = (here / name).stat()
            except OSError:  # a broken link, or a file that was removed meanwhile
                continue
            found[here / name] = status.st_size, status.st_mtime_ns
        if len(found) > _MAX_FILES:
            break
    return found


def changed(before: dict[Path, tuple[int, int]], after: dict[Path, tuple[int, int]]) -> list[Path]:
    """Returns the files that are new, or that were written. Pure."""
    return sorted(path for path, mark in after.items() if before.get(path) != mark)
