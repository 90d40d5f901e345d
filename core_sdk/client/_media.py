"""Media for readers: images, audios and other files that a trial has reported."""

from __future__ import annotations

import os
from pathlib import Path

from core_sdk._home import Home
from core_sdk._home.media import HomeMedia
from core_sdk._home.rows import MediaRow
from core_sdk.client._metrics import to_datetime


class ReportedMedia:
    """An image, an audio or another medium of a report. Its content is read when it is asked for."""

    def __init__(self, home: Home, row: MediaRow) -> None:
        self._home = home
        self.trial_id = row.trial_id
        self.trial_run_id = row.attempt
        self.rank = row.rank
        self.group = row.group
        self.name = row.name
        self.steps_completed = row.steps_completed
        self.end_time = to_datetime(row.time)
        self.file = row.file
        self.is_superseded = row.is_superseded

    def __repr__(self) -> str:
        return f"ReportedMedia({self.file.kind} {self.group}/{self.name} at {self.steps_completed})"

    def read(self) -> bytes:
        """Returns the content. Raises `RecordDamagedError` if the file is missing, or is not what was reported."""
        return HomeMedia(self._home).read(self.trial_id, self.file.name)

    def download(self, path: str | os.PathLike[str]) -> str:
        """Writes the content into the file `path`, and returns that path. Raises `RecordDamagedError`."""
        Path(path).write_bytes(self.read())
        return str(path)
