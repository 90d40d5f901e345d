"""The event files that a script wrote itself, read for their media.

They are read where they lie, since a copy of their images would double them. A file is read from where the last look
has ended, and up to its last whole event: the writer may be in the middle of the next one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from core_sdk._analysis.tensorboard._decoding import ScriptMedium, media_of_event
from core_sdk._analysis.tensorboard._frames import next_message
from core_sdk._ground.environment import max_media_bytes
from core_sdk._ground.files import reading
from core_sdk._home.rows import MediaRow

logger = logging.getLogger("core_sdk.tensorboard")

GROUP = "tensorboard"
"""The group of media in event files."""
_MAX_FILES = 1000
_MAX_MEDIA = 100_000
_BESIDE_CONTENT_BYTES = 1 << 16
"""The most bytes that an event has besides the content of a medium."""


@dataclass
class _EventFile:
    """A file, as far as it was read."""

    identity: tuple[int, int]
    """The device and the inode. A new copy is another file."""
    offset: int = 0
    media: list[tuple[ScriptMedium, int]] = field(default_factory=list)
    """The media, with the offsets of their events."""
    is_closed: bool = False
    """Whether nothing more can be read, since the size of an event is damaged."""


class ScriptFiles:
    """The media in the event files of a directory. Any thread may ask."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[Path, _EventFile] = {}
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

    def rows(self, trial_id: int, attempts: Sequence[tuple[int, float]]) -> list[MediaRow]:
        """Returns the media as rows. `attempts` are the trial's numbers, with the times at which they began."""
        self.look()
        return rows_of_attempts(trial_id, self.media(), attempts)

    def content(self, file_name: str) -> bytes | None:
        """Returns the content of a medium by its `MediaFile.name`, or None if no file has it."""
        if (content := self._known_content(file_name)) is None:
            self.look()
            content = self._known_content(file_name)
        return content

    def _known_content(self, file_name: str) -> bytes | None:
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
                event = next_message(file, os.fstat(file.fileno()).st_size, _max_event_bytes())
                for medium, content in media_of_event(event or b""):
                    if medium.file.name == file_name:
                        return content
        return None

    def _read(self, path: Path) -> None:
        with reading(path) as file:
            status = os.fstat(file.fileno())
            identity = status.st_dev, status.st_ino
            known = self._files.get(path)
            if known is None or known.identity != identity or known.offset > status.st_size:
                known = self._files[path] = _EventFile(identity)
            file.seek(known.offset)
            num_left = _MAX_MEDIA - sum(len(each.media) for each in self._files.values())
            max_bytes = _max_event_bytes()
            while num_left > 0 and not known.is_closed:
                try:
                    event = next_message(file, status.st_size, max_bytes)
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
        return [medium._replace(name=run + medium.name) for medium, _ in media]


def rows_of_attempts(
    trial_id: int, media: Sequence[ScriptMedium], attempts: Sequence[tuple[int, float]]
) -> list[MediaRow]:
    """Returns media with the attempts that have written them, by their times. Pure.

    A script counts its steps in event files as it likes. So a medium is superseded as soon as a later attempt has
    written one of the same name at the same step or an earlier one.
    """
    begun = [time for _, time in attempts]
    rows = [
        MediaRow(
            trial_id,
            attempts[max(0, bisect_right(begun, each.wall_time) - 1)][0] if attempts else 1,
            0,
            GROUP,
            each.name,
            each.step,
            each.wall_time,
            each.file,
        )
        for each in media
    ]
    first_steps: dict[str, dict[int, int]] = {}
    for row in rows:
        steps = first_steps.setdefault(row.name, {})
        steps[row.attempt] = min(row.steps_completed, steps.get(row.attempt, row.steps_completed))
    return [
        msgspec.structs.replace(row, is_superseded=True)
        if any(attempt > row.attempt and step <= row.steps_completed for attempt, step in first_steps[row.name].items())
        else row
        for row in rows
    ]


def _event_files(directory: Path) -> list[Path]:
    paths = (Path(parent, name) for parent, _, names in os.walk(directory) for name in names if "tfevents" in name)
    return sorted(paths)[:_MAX_FILES]


def _max_event_bytes() -> int:
    return max_media_bytes() + _BESIDE_CONTENT_BYTES
