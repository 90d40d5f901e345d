"""Finds the alerts that a running attempt records, for an agent that posts them."""

from __future__ import annotations

import contextlib

from core_sdk._execution.messages._posting import post_of_trial
from core_sdk._execution.messages._targets import MessageKind
from core_sdk._ground.records import Alert
from core_sdk._home.folders import TrialFolder
from core_sdk._home.journal import read_journal


class NewAlerts:
    """The alerts of a trial's attempts since this object was made."""

    def __init__(self, folder: TrialFolder) -> None:
        self._folder = folder
        self._offsets: dict[int, int] = {}

    def post(self) -> None:
        """Posts those that are new. Reads nothing if the home has no targets."""
        if not (self._folder.home_root / "notify.json").exists():
            return
        with contextlib.suppress(OSError):
            attempt = max(self._folder.attempts())
            path = self._folder.journal_path(attempt)
            if not path.exists():
                return
            for chunk in read_journal(path, self._offsets.get(attempt, 0)):
                for record, end in zip(chunk.records, chunk.ends, strict=True):
                    if isinstance(record, Alert):
                        kind: MessageKind = "went_back" if record.title == "went back" else "alert"
                        text = record.description if kind == "went_back" else f"{record.title}: {record.description}"
                        post_of_trial(self._folder, kind, f"{attempt}/{end}", text.removesuffix(": "))
                self._offsets[attempt] = chunk.end_offset
