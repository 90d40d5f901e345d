"""Opens files by descriptor, and writes small ones that exist whole or not at all, even after a power cut."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, overwrite: bool = True) -> None:
    """Writes, fsyncs and renames a file, so that a reader sees the old content or the new one.

    With `overwrite=False` it raises `FileExistsError` if the file exists, even if two writers race.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            temporary.replace(path)
        else:
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)


def fsync_directory(directory: Path) -> None:
    """Fsyncs a directory, so that its entries survive a power cut."""
    with opened(directory, os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def opened(path: Path | str, flags: int, *, under: int | None = None) -> Iterator[int]:
    """A descriptor of `path`, or of `path` under the directory `under`. It is read-only unless `flags` say more."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, dir_fd=under)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
