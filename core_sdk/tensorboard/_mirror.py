"""The mirror: event files that follow a journal while it is being written.

The thread shares the GIL with the training, so it works in slices of about a millisecond and pauses after each one.
While reports arrive, it takes at most `BUSY_SHARE` of the time, so that a slice delays at most that share of the
reports. It lags behind a burst of reports, and catches up faster when no reports arrive.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
from pathlib import Path

from core_sdk.journal import Journal
from core_sdk.tensorboard._event_file import EventFile, event_file_path
from core_sdk.tensorboard._scalars import JournalScalars

logger = logging.getLogger("core_sdk.tensorboard")

BUSY_SHARE = 0.004
"""The share of the time that the thread works while reports arrive. It is too small to affect a 99th percentile."""
QUIET_SHARE = 0.1
"""The share of the time that the thread works once no report has arrived for a second."""
LOOK_INTERVAL_S = 1.0

# A slice decodes one chunk at most and encodes so many scalars: together about a millisecond.
_CHUNK_BYTES = 8 << 10
_SLICE_SCALARS = 192


class TensorboardMode(enum.Enum):
    """AUTO: event files follow the reports. MANUAL: the script writes its own and calls `upload_tensorboard_files`."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


def pause_after(work_s: float, *, is_behind: bool, is_quiet: bool) -> float:
    """Returns the pause in seconds after a slice that took `work_s`."""
    share = QUIET_SHARE if is_quiet else BUSY_SHARE
    pause_s = work_s / share - work_s
    return pause_s if is_behind else max(pause_s, LOOK_INTERVAL_S)


class TensorboardMirror:
    """Writes the scalars of a journal to an event file in `directory`. The file is made with the first scalar."""

    def __init__(self, journal: Journal, directory: Path, *, close_timeout_s: float = 2.0) -> None:
        self._written = journal
        self._directory = directory
        self._close_timeout_s = close_timeout_s
        self._journal = JournalScalars(journal.path, chunk_bytes=_CHUNK_BYTES, verify=False)
        self._event_file: EventFile | None = None
        self._process = os.getpid()
        self._is_closed = False
        self._has_failed = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="core-sdk-tensorboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Writes the remaining scalars for at most `close_timeout_s`, and logs how much is left.

        Does nothing the second time, and in a forked child.
        """
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        deadline = time.monotonic() + self._close_timeout_s
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(self._close_timeout_s)
        if not self._thread.is_alive():
            while self._mirror_slice() and time.monotonic() < deadline:
                pass
            if self._event_file is not None:
                self._event_file.close()
        if not self._has_failed:
            self._tell_what_is_left()

    def _follow(self) -> None:
        pause_s = LOOK_INTERVAL_S
        size_bytes = 0
        grew_at = time.monotonic()
        while not self._closing.wait(pause_s) and not self._has_failed:
            looked_at, worked_before_s = time.monotonic(), time.thread_time()
            if (new_size_bytes := self._journal_size()) != size_bytes:
                size_bytes, grew_at = new_size_bytes, looked_at
            is_behind = (
                not self._journal.has_read(size_bytes)
                and self._mirror_slice()
                and not self._journal.has_read(size_bytes)
            )
            is_quiet = looked_at - grew_at >= LOOK_INTERVAL_S
            work_s = time.thread_time() - worked_before_s
            pause_s = pause_after(work_s, is_behind=is_behind, is_quiet=is_quiet)

    def _mirror_slice(self) -> bool:
        """Writes a few scalars. Returns False if there is nothing to read, or if writing has failed."""
        if self._has_failed:
            return False
        self._journal.journal_path = self._written.path
        try:
            try:
                scalars = self._journal.read(_SLICE_SCALARS)
            except FileNotFoundError:  # it was moved a moment ago, or removed: its writer says so
                return False
            if scalars is None:
                return False
            if scalars:
                self._open_event_file().append(scalars)
        except OSError as error:
            logger.warning("TensorBoard's event files are not written any more: %s. %s", error, self._remedy())
            self._has_failed = True
            return False
        return True

    def _open_event_file(self) -> EventFile:
        if self._event_file is None:
            started = self._journal.started
            self._event_file = EventFile(event_file_path(self._directory, started), started)
        return self._event_file

    def _journal_size(self) -> int:
        try:
            return self._written.path.stat().st_size
        except OSError:
            return 0

    def _tell_what_is_left(self) -> None:
        size_bytes = self._journal_size()
        if self._journal.offset < size_bytes:
            percentage = 100 * self._journal.offset / size_bytes
            logger.info(
                "TensorBoard's event files hold the first %.0f %% of this attempt. %s", percentage, self._remedy()
            )

    def _remedy(self) -> str:
        trial_id = self._journal.started.trial_id
        return f"`core-sdk trial tensorboard {trial_id}` writes the rest from the journal, which has everything."
