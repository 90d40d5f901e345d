"""Opening directories, and removing what they hold, without ever following a link."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from core_sdk.files import opened
from core_sdk.storage._names import parents

# Something else stands there now than what was listed: it is not ours to remove.
_REPLACED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP})


def opened_directory(path: Path | str, under: int | None = None) -> AbstractContextManager[int]:
    """A descriptor of the directory `path`, or of `path` under the directory `under`.

    Raises `NotADirectoryError` where its last component is a link.
    """
    return opened(path, os.O_DIRECTORY | os.O_NOFOLLOW, under=under)


def first_replaced(directory: int, names: Sequence[str]) -> str | None:
    """The first parent directory of `names` that is no longer a directory, but a link, for example."""
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
    # In this order a directory comes after all that it holds.
    for name in sorted(names, reverse=True):
        parent, _, last = name.rstrip("/").rpartition("/")
        try:
            with _opened_below(directory, parent) as descriptor:
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
