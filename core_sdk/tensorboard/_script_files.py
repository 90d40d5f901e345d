"""The event files that a script wrote itself, read for their media.

They are read where they lie, since a copy of their images would double them. A file is read from where the last look
has ended, and up to its last whole event: the writer may be in the middle of the next one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from core_sdk.environment import max_media_bytes
from core_sdk.files import reading
from core_sdk.records import MediaFile
from core_sdk.tensorboard._decoding import media_of_event
from core_sdk.tensorboard._encoding import masked_checksum

logger = logging.getLogger("core_sdk.tensorboard")

_OWN_FILE = re.compile(r"events\.out\.tfevents\.\d{10,}\.\d{6}\.[A-Za-z0-9._-]{1,64}\.\d+")
"""The names that `event_file_path` gives to the files that follow a journal."""
_MAX_FILES = 1000
_MAX_MEDIA = 100_000
_SIZE_BYTES = 8
_CHECKSUM_BYTES = 4
_BESIDE_CONTENT_BYTES = 1 << 16
"""Bytes that an event may have beside the content of a medium."""


class ScriptMedium(NamedTuple):
    """A medium of an event file."""

    wall_time: float
    step: int
    name: str
    """The tag; in a directory below the first one, after the directory's path: "version_0/samples"."""
    file: MediaFile


@dataclass
class _File:
    """A file, as far as it was read."""

    identity: tuple[int, int]
    """The device and the inode. A copy that is made anew is another file."""
    offset: int = 0
    media: list[tuple[ScriptMedium, int]] = field(default_factory=list)
    """The media, with the offsets of their events."""
    is_closed: bool = False
    """Whether nothing more can be read, since the size of an event is damaged."""


class ScriptFiles:
    """The media in the event files of a directory. Any thread may ask.

    The files of the mirror, which have what was reported, are left out.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[Path, _File] = {}
        self._ends: dict[Path, tuple[tuple[int, int], int]] = {}
        self._version = 0
        self._lock = threading.Lock()

    def look(self) -> int:
        """Reads what is new, and returns a number that grows whenever there was anything."""
        with self._lock:
            paths = _event_files(self._directory)
            self._files = {path: each for path, each in self._files.items() if path in paths}
            for path in paths:
                try:
                    self._read(path)
                except OSError as error:  # it was deleted meanwhile, or nobody may read it
                    logger.debug("the event file %s is left out: %s", path, error)
                    self._files.pop(path, None)
            ends = {path: (each.identity, each.offset) for path, each in self._files.items()}
            self._version += ends != self._ends
            self._ends = ends
            return self._version

    def media(self) -> list[ScriptMedium]:
        """Returns the media as of the last look, in the order of their steps and times."""
        with self._lock:
            found = [medium for each in self._files.values() for medium, _ in each.media]
        return sorted(found, key=lambda medium: (medium.step, medium.wall_time))

    def content(self, file_name: str) -> bytes | None:
        """Returns the content of a medium by its `MediaFile.name`, or None if no file has it."""
        with self._lock:
            places = [
                (path, offset)
                for path, each in self._files.items()
                for medium, offset in each.media
                if medium.file.name == file_name
            ]
        for path, offset in places:
            with contextlib.suppress(OSError, ValueError), reading(path) as file:
                file.seek(offset)
                for medium in media_of_event(_next_event(file, os.fstat(file.fileno()).st_size) or b""):
                    if medium.file.name == file_name:
                        return medium.content
        return None

    def _read(self, path: Path) -> None:
        with reading(path) as file:
            status = os.fstat(file.fileno())
            identity = status.st_dev, status.st_ino
            known = self._files.get(path)
            if known is None or known.identity != identity or known.offset > status.st_size:
                known = self._files[path] = _File(identity)
            file.seek(known.offset)
            num_left = _MAX_MEDIA - sum(len(each.media) for each in self._files.values())
            while num_left > 0 and not known.is_closed:
                try:
                    event = _next_event(file, status.st_size)
                except ValueError as error:
                    logger.warning("the event file %s is not read on from byte %d: %s", path, known.offset, error)
                    known.is_closed = True
                    return
                if event is None:
                    return
                found = self._media_of(path, event)
                known.media += [(medium, known.offset) for medium in found]
                num_left -= len(found)
                known.offset = file.tell()

    def _media_of(self, path: Path, event: bytes) -> list[ScriptMedium]:
        run = "" if path.parent == self._directory else f"{path.parent.relative_to(self._directory).as_posix()}/"
        try:
            media = media_of_event(event)
        except ValueError:
            return []
        return [ScriptMedium(each.wall_time, each.step, run + each.tag, each.file) for each in media]


def _event_files(directory: Path) -> list[Path]:
    found = []
    for parent, _, names in os.walk(directory):
        is_run = Path(parent) != directory
        paths = (Path(parent, name) for name in names if "tfevents" in name)
        found += [path for path in paths if is_run or _OWN_FILE.fullmatch(path.name) is None]
    return sorted(found)[:_MAX_FILES]


def _next_event(file: BinaryIO, end: int) -> bytes | None:
    """Returns the next event; None at the `end` of the file, and where the rest of an event is not written yet.

    It is empty where it is damaged, or too large to be read. Raises `ValueError` if its size is damaged, since nobody
    knows then where the next one begins.
    """
    size, checksum = file.read(_SIZE_BYTES), file.read(_CHECKSUM_BYTES)
    if len(checksum) < _CHECKSUM_BYTES:
        return None
    if masked_checksum(size) != checksum:
        raise ValueError("the size of an event is damaged")
    (size_bytes,) = struct.unpack("<Q", size)
    if file.tell() + size_bytes + _CHECKSUM_BYTES > end:
        return None
    if size_bytes > _BESIDE_CONTENT_BYTES and size_bytes > max_media_bytes() + _BESIDE_CONTENT_BYTES:
        file.seek(size_bytes + _CHECKSUM_BYTES, os.SEEK_CUR)
        return b""
    event, checksum = file.read(size_bytes), file.read(_CHECKSUM_BYTES)
    return event if masked_checksum(event) == checksum else b""
