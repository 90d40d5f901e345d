"""The event files that a script writes itself: who shows them, and how they are copied."""

from __future__ import annotations

import enum
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from core_sdk._ground.ownership import give_to_owner_of, make_directory
from core_sdk.errors import UnsafePathError


class TensorboardMode(enum.Enum):
    """AUTO: event files are shown where the script writes them. MANUAL: `upload_tensorboard_files` copies them."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


Selector = Callable[[Path], bool]
"""Decides whether the file at this absolute path is copied."""
Mangler = Callable[[Path, int], Path]
"""Returns a file's name in the copy, given its name in the source and the rank."""


def copy_event_files(source: Path, destination: Path, selector: Selector, mangler: Mangler, rank: int) -> list[Path]:
    """Copies the selected files whose size or time has changed since they were copied, and returns the new copies.

    A copy is never incomplete. Before anything is copied, raises `UnsafePathError` for a name that would leave
    `destination`, and `ValueError` if two files would get the same name.
    """
    origins: dict[Path, Path] = {}
    for file in _files(source.absolute()):
        if selector(file):
            target = _target(destination, mangler(file.relative_to(source.absolute()), rank))
            if target in origins:
                raise ValueError(f"{origins[target]} and {file} would both be copied to {target}")
            origins[target] = file
    return [target for target, file in origins.items() if _copy_if_changed(file, target)]


def _files(source: Path) -> Iterator[Path]:
    for directory, subdirectories, names in os.walk(source):
        subdirectories.sort()
        yield from (path for name in sorted(names) if (path := Path(directory, name)).is_file())


def _target(destination: Path, name: Path) -> Path:
    root = destination.resolve()
    target = (root / name).resolve()
    if not target.is_relative_to(root) or target == root:
        raise UnsafePathError("the event file's name", str(name), f"would leave {destination}")
    return target


def _copy_if_changed(file: Path, target: Path) -> bool:
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        # Writers of event files rotate and delete them at any time.
        return False
    with opened as content:
        status = os.fstat(content.fileno())
        if target.exists() and _version(target.stat()) == _version(status):
            return False
        make_directory(target.parent, parents=True, exist_ok=True)
        temporary = target.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as copy:
                give_to_owner_of(target.parent, temporary, copy.fileno())
                shutil.copyfileobj(content, copy)
            # The copy gets the time from before copying began, so that later changes are copied the next time.
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    return True


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
