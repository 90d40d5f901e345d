"""Pieces of files, which are sent between a spool and the home."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from core_sdk._ground.files import fingerprint
from core_sdk._ground.records import WRITER_NAME

PIECE_BYTES = 4 << 20

# The files of a trial that are only appended to, and those that are replaced as a whole.
_GROWING = re.compile(
    rf"([1-9][0-9]*)\.(?:(?:rank[1-9][0-9]*\.|writer\.{WRITER_NAME}\.)?journal|callbacks|log)|tensorboard/[^/]+(?:/[^/]+)*"
)
_WHOLE = re.compile(r"([1-9][0-9]*)\.(?:environment|exit|run\.json)|trial\.json")


class Piece(NamedTuple):
    """Bytes of a file from an offset on."""

    name: str
    """The name of the file, relative to the home."""
    offset: int
    content: bytes
    is_whole: bool = False
    """Whether the content replaces the file."""


class Arrived(NamedTuple):
    """The part of a file that the home has."""

    size_bytes: int = 0
    checksum: int = 0
    """The fingerprint of a file that grows; of one that is replaced, the checksum of all of it."""

    @classmethod
    def at(cls, path: Path) -> Arrived:
        size_bytes = path.stat().st_size
        return cls(size_bytes, fingerprint(path, size_bytes))

    @classmethod
    def whole(cls, content: bytes) -> Arrived:
        return cls(len(content), zlib.crc32(content))


def is_growing(name: str, trial_id: int, attempt: int | None = None) -> bool:
    """Returns whether this file of the trial, from `attempt` on or of any attempt, is brought back as it grows. Pure.

    A launcher that restarts its ranks begins further attempts. Writers tell of earlier ones, too.
    """
    return _matches(_GROWING, name, trial_id, attempt)


def is_whole(name: str, trial_id: int, attempt: int | None) -> bool:
    """Returns whether this file is brought back as a whole, which files of earlier attempts are not. Pure."""
    return attempt is not None and _matches(_WHOLE, name, trial_id, attempt)


def is_journal(name: str) -> bool:
    return name.endswith(".journal")


def is_of_writer(name: str) -> bool:
    return is_journal(name) and ".writer." in name


def files_of(root: Path, trial_id: int) -> list[str]:
    """Returns the names of a trial's files in a spool or home, without its copy of the code."""
    folder = root / "runs" / str(trial_id)
    paths = [*folder.glob("*"), *folder.glob("tensorboard/**/*")]
    return sorted(path.relative_to(root).as_posix() for path in paths if path.is_file())


def in_pieces(name: str, file: BinaryIO) -> Iterator[Piece]:
    """Yields the pieces of a file. An empty file is one piece."""
    offset, content = 0, file.read(PIECE_BYTES)
    yield Piece(name, 0, content)
    while content := file.read(PIECE_BYTES):
        offset += PIECE_BYTES
        yield Piece(name, offset, content)


def _matches(pattern: re.Pattern[str], name: str, trial_id: int, attempt: int | None) -> bool:
    folder = f"runs/{trial_id}/"
    match = pattern.fullmatch(name.removeprefix(folder)) if name.startswith(folder) else None
    if match is None or ".." in name.split("/"):
        return False
    return attempt is None or match[1] is None or int(match[1]) >= attempt or is_of_writer(name)
