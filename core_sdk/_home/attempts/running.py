"""Attempts that another process has started: whether they have begun, and when they end."""

from __future__ import annotations

import math
import time

from core_sdk._ground.alive import AliveLock, is_alive
from core_sdk._home.folders import TrialFolder
from core_sdk._home.rows import AttemptRow
from core_sdk._home.streams import size_bytes
from core_sdk.errors import TrialRunningError

_POLL_S = 0.05


def attempt_rows(folder: TrialFolder) -> list[AttemptRow]:
    """Returns the trial's attempts in order."""
    running = folder.running_attempts()
    others = folder.other_journals()
    return [
        AttemptRow(
            trial_id=folder.trial_id,
            attempt=attempt,
            is_running=attempt in running,
            log_size_bytes=size_bytes(folder.log_path(attempt)),
            ranks=(0, *(rank for number, rank in others if number == attempt)),
        )
        for attempt in folder.attempts()
    ]


def await_end(folder: TrialFolder, timeout_s: float = math.inf) -> bool:
    """Waits until no attempt of the trial is running, and its end is recorded. Returns False after the timeout."""
    deadline = time.monotonic() + timeout_s
    while (is_running := folder.running_attempt() is not None) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return not is_running


def never_began(folder: TrialFolder, attempt: int) -> bool:
    """Returns whether nothing of the attempt has ever run, because its starter died before the agent had the order."""
    return not is_alive(folder.supervised_path(attempt)) and _is_only_announced(folder, attempt)


def take_back(folder: TrialFolder, attempt: int) -> None:
    """Forgets an attempt that never began, so that the next one gets its number.

    Raises `TrialRunningError` if it did begin.
    """
    try:
        lock = AliveLock(folder.supervised_path(attempt))
    except BlockingIOError as error:
        raise TrialRunningError(folder.trial_id, attempt, "start") from error
    try:
        if not _is_only_announced(folder, attempt):
            raise TrialRunningError(folder.trial_id, attempt, "start")
        folder.run_info_path(attempt).unlink()
    finally:
        lock.release()


def take_for_dead(folder: TrialFolder) -> None:
    """Removes the locks of the trial, whose host is dead, so that the trial no longer counts as running.

    A shared file system may hold the locks of a dead host for ever. If an agent there is alive after all, but cut off
    from the others, it sees that its lock is gone, and records no end.
    """
    for pattern in ("*.supervised", "*.alive", "node*/*.supervised"):
        for path in folder.path.glob(pattern):
            path.unlink(missing_ok=True)


def _is_only_announced(folder: TrialFolder, attempt: int) -> bool:
    traces = (folder.log_path(attempt), folder.journal_path(attempt), folder.exit_path(attempt))
    return folder.run_info_path(attempt).exists() and not any(trace.exists() for trace in traces)
