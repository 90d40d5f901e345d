"""The right to start a trial's next attempt: one process at a time holds it, and loses it when it dies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.environment import Mark
from core_sdk._home.folders import TrialFolder
from core_sdk._machine.processes import is_any_marked
from core_sdk.errors import TrialRunningError


def mark_of_attempt(folder: TrialFolder, attempt: int) -> Mark:
    """Returns the mark of all processes that the attempt's agent has started."""
    return Mark.of(folder.run_info_path(attempt))


def left_attempt(folder: TrialFolder) -> int | None:
    """Returns the number of the attempt that a killed agent and its guardian left running on this machine, or None.

    An attempt whose end is recorded has left only processes that could not be killed.
    """
    attempts = folder.attempts()
    if not attempts or folder.read_exit(attempts[-1]) is not None:
        return None
    return next((number for number in reversed(attempts) if is_any_marked(str(mark_of_attempt(folder, number)))), None)


def claim_next_attempt(folder: TrialFolder, action: str) -> tuple[int, AliveLock]:
    """Returns the next attempt's number and a lock; until the lock is released, the trial counts as running.

    Meanwhile no other process starts or deletes the trial. Raises `TrialRunningError`, saying that one cannot `action`
    the trial, while an attempt runs or is being started.
    """
    if (running := folder.running_attempt()) is not None:
        is_stopping = folder.stop_path(running).exists()
        raise TrialRunningError(folder.trial_id, running, action, is_stopping=is_stopping)
    if (left := left_attempt(folder)) is not None:
        raise TrialRunningError(folder.trial_id, left, action)
    attempt = max(folder.attempts(), default=0) + 1
    try:
        lock = AliveLock(folder.supervised_path(attempt))
    except BlockingIOError as error:
        raise TrialRunningError(folder.trial_id, attempt, action) from error
    if attempt in folder.attempts():
        # Another process claimed it, and ended, between our look and our lock.
        lock.release()
        raise TrialRunningError(folder.trial_id, attempt, action)
    return attempt, lock


@contextlib.contextmanager
def claimed_next_attempt(folder: TrialFolder, action: str) -> Iterator[int]:
    """Holds the claim for the length of the block, and gives the next attempt's number. Raises likewise."""
    attempt, lock = claim_next_attempt(folder, action)
    try:
        yield attempt
    finally:
        lock.release()
