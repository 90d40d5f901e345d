"""The right to start a trial's next attempt: held by one process at a time, and freed by its death."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from core_sdk.alive import AliveLock
from core_sdk.errors import TrialRunningError
from core_sdk.tracking.home import TrialFolder


@contextlib.contextmanager
def claimed_next_attempt(folder: TrialFolder, action: str) -> Iterator[int]:
    """The next attempt's number; until the end nobody else starts or deletes the trial, and it counts as running.

    Raises `TrialRunningError`, saying that one cannot `action` the trial, while an attempt runs or is being started.
    """
    if (running := folder.running_attempt()) is not None:
        is_stopping = folder.stop_path(running).exists()
        raise TrialRunningError(folder.trial_id, running, action, is_stopping=is_stopping)
    attempt = max(folder.attempts(), default=0) + 1
    try:
        lock = AliveLock(folder.supervised_path(attempt))
    except BlockingIOError as error:
        raise TrialRunningError(folder.trial_id, attempt, action) from error
    try:
        if attempt in folder.attempts():
            # Another process claimed it, and ended, between our look and our lock.
            raise TrialRunningError(folder.trial_id, attempt, action)
        yield attempt
    finally:
        lock.release()
