"""The media of trials: files that are named by the SHA-256 of their content and verified whenever they are read, and
what scripts have written into TensorBoard's event files, which is found there by the same names.
"""

from __future__ import annotations

import hashlib
import re
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from core_sdk.errors import RecordDamagedError, UnsafePathError
from core_sdk.files import read_regular
from core_sdk.records import EXTENSIONS
from core_sdk.tracking.home import Home
from core_sdk.tracking.rows import MediaRow

if TYPE_CHECKING:
    from core_sdk.tensorboard import ScriptFiles, ScriptMedium

EVENT_FILES = "tensorboard"
"""The group of media in event files."""
_NUM_REMEMBERED = 16
_NAME = re.compile(rf"([0-9a-f]{{64}})\.({'|'.join(EXTENSIONS.values())}|bin)")


def read_media(directory: Path, name: str) -> bytes:
    """Returns the content of a file. Raises `RecordDamagedError` or `UnsafePathError`."""
    path = directory / check_media_name(name)
    try:
        content = read_regular(path)
    except OSError as error:
        raise RecordDamagedError(path, error.strerror or str(error)) from error
    if not is_content_of(name, content):
        raise RecordDamagedError(path, "its content has another SHA-256 than its name says")
    return content


def check_media_name(name: str) -> str:
    """Returns the name of a file of media. Raises `UnsafePathError` for any other name."""
    if _NAME.fullmatch(name) is None:
        raise UnsafePathError("the name", name, "is none of a file of media")
    return name


def is_content_of(name: str, content: bytes | bytearray) -> bool:
    """Returns whether this is the content of the file of this name."""
    return hashlib.sha256(content).hexdigest() == name.partition(".")[0]


class ScriptMedia:
    """The media that scripts have written into event files, by trial. Any thread may ask."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._files: dict[int, ScriptFiles] = {}
        self._lock = threading.Lock()

    def look(self, trial_id: int) -> int:
        """Reads what is new in the trial's event files, and returns a number that changes if there was anything."""
        return self._of(trial_id).look()

    def read(self, trial_id: int, name: str) -> bytes | None:
        """Returns the content of a medium by its `MediaFile.name`, or None if no event file has it."""
        files = self._of(trial_id)
        if (content := files.content(name)) is None:
            files.look()
            content = files.content(name)
        return content

    def rows(self, trial_id: int, attempts: Sequence[tuple[int, float]]) -> list[MediaRow]:
        """Returns the media of a trial. `attempts` are its numbers, with the times at which they began, in order."""
        files = self._of(trial_id)
        files.look()
        return rows_of_attempts(trial_id, files.media(), attempts)

    def _of(self, trial_id: int) -> ScriptFiles:
        from core_sdk.tensorboard import ScriptFiles  # most who read records need no media

        with self._lock:
            files = self._files.pop(trial_id, None) or ScriptFiles(self._home.folder(trial_id).tensorboard_path)
            self._files[trial_id] = files
            if len(self._files) > _NUM_REMEMBERED:
                del self._files[next(iter(self._files))]
            return files


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
            EVENT_FILES,
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
        replace(row, is_superseded=True)
        if any(attempt > row.attempt and step <= row.steps_completed for attempt, step in first_steps[row.name].items())
        else row
        for row in rows
    ]
