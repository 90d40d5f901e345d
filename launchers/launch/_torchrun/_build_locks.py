"""Locks of torch's builds of extensions that a killed build has left, and for which ranks would wait for ever."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

# torch puts each extension into a directory of its name, by default inside one of the version of Python.
_PATTERNS = ("*/lock", "*/*/lock")
_MINUTE_S = 60.0


def stale_locks(directory: Path) -> list[Path]:
    """Returns the locks in the directory of extensions that no process of this machine has open, as a build has."""
    locks = [lock for pattern in _PATTERNS for lock in directory.glob(pattern) if lock.is_file()]
    open_files = set(_open_files()) if locks and Path("/proc/self/fd").exists() else None
    with contextlib.suppress(FileNotFoundError):  # the build has just ended
        return [lock for lock in locks if open_files is not None and _identity(lock) not in open_files]
    return []


def describe_lock(lock: Path) -> str:
    """Says what a stale lock means, and how to go on."""
    age_min = (time.time() - lock.stat().st_mtime) / _MINUTE_S
    return (
        f"{lock} is {age_min:.0f} min old, and no process of this machine builds there: torch's build of "
        f"{lock.parent.name} was killed, and a rank that needs it waits for ever. Unless another machine builds there, "
        f"stop this training, remove the file (rm {lock}), and start again"
    )


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _open_files() -> Iterator[tuple[int, int]]:
    """Yields the identities of all files that processes of this user have open."""
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for descriptor in descriptors.iterdir():
                with contextlib.suppress(OSError):
                    yield _identity(descriptor)
