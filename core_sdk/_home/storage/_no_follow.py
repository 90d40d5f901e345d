"""Opening directories, and writing and removing what they hold, without ever following a link."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from core_sdk._ground.files import opened
from core_sdk._home.storage._names import parents

# These say that the path now leads to something else than what was listed, which is not ours to remove.
_REPLACED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP})


def opened_directory(path: Path | str, under: int | None = None) -> AbstractContextManager[int]:
    """Opens a descriptor of the directory `path`, or of `path` under the directory `under`.

    Raises `NotADirectoryError` where its last component is a link.
    """
    return opened(path, os.O_DIRECTORY | os.O_NOFOLLOW, under=under)


@contextlib.contextmanager
def opened_parent(directory: int, name: str) -> Iterator[tuple[int, str]]:
    """Yields a descriptor of the directory in which `name` stands, and its name there."""
    parent, _, last = name.rstrip("/").rpartition("/")
    with _opened_below(directory, parent) as descriptor:
        yield descriptor, last


def write_new(directory: int, name: str, content: bytes) -> None:
    """Writes a file that is not there yet. Raises `FileExistsError`."""
    with opened_parent(directory, name) as (parent, last), new_file(last, parent) as file:
        file.write(content)


def new_file(name: str, directory: int) -> BinaryIO:
    """Opens a new file for writing. Raises `FileExistsError`, also where a link has its name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(name, flags, 0o666, dir_fd=directory), "wb")


def is_at(directory: int, path: Path) -> bool:
    """Returns whether `path` itself is this directory, and no link to it. Raises `FileNotFoundError`."""
    return os.path.samestat(path.lstat(), os.fstat(directory))


def first_replaced(directory: int, names: Sequence[str]) -> str | None:
    """Returns the first parent directory of `names` that is no longer a directory, but a link, for example."""
    for parent in sorted({parent for name in names for parent in parents(name.rstrip("/"))}):
        try:
            with _opened_below(directory, parent):
                pass
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            return parent
    return None


def remove(directory: int, names: Sequence[str]) -> None:
    """Removes files, and the directories whose names end with "/". What was replaced or is gone is ignored."""
    # Reversed, so that a directory comes after all that it holds.
    for name in sorted(names, reverse=True):
        try:
            with opened_parent(directory, name) as (descriptor, last):
                os.rmdir(last, dir_fd=descriptor) if name.endswith("/") else os.unlink(last, dir_fd=descriptor)
        except OSError as error:
            if error.errno not in _REPLACED:
                raise


@contextlib.contextmanager
def _opened_below(directory: int, name: str) -> Iterator[int]:
    with contextlib.ExitStack() as stack:
        for component in filter(None, name.split("/")):
            directory = stack.enter_context(opened_directory(component, directory))
        yield directory
