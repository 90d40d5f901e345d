"""Free space on a disk."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from core_sdk.errors import NotEnoughSpaceError


@contextlib.contextmanager
def space_for(needed_bytes: int, directory: Path) -> Iterator[None]:
    """Raises `NotEnoughSpaceError` if the disk of `directory` is too full, before the block or within it."""
    free_bytes = shutil.disk_usage(directory).free
    if needed_bytes > free_bytes:
        raise NotEnoughSpaceError(directory, needed_bytes, free_bytes)
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise NotEnoughSpaceError(directory, needed_bytes, shutil.disk_usage(directory).free) from error
