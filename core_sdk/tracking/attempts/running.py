"""Attempts that another process has started: whether they have begun, when they end, and how to kill them."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from core_sdk.alive import AliveLock, is_alive, signed_by
from core_sdk.errors import AgentNotFoundError, TrialRunningError
from core_sdk.records import Settled
from core_sdk.tracking.attempts.ending import record_end
from core_sdk.tracking.home import TrialFolder

if TYPE_CHECKING:
    import psutil

_POLL_S = 0.05
# An agent signs the attempt's lock as soon as it has got it.
_SIGNING_S = 2.0


def await_end(folder: TrialFolder, timeout_s: float = math.inf) -> bool:
    """Waits until no attempt of the trial is running; then its end is recorded. Returns whether that came in time."""
    deadline = time.monotonic() + timeout_s
    while (is_running := folder.running_attempt() is not None) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return not is_running


def never_began(folder: TrialFolder, attempt: int) -> bool:
    """Whether whoever was to start the attempt died before its agent had the order: nothing of it has ever run."""
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
    """Lets nothing of the trial count as running any more, since the host on which it ran is dead.

    A shared file system may hold the locks of a dead host for ever. An agent there that lives after all, cut off from
    the others, sees that its lock is gone, and records no end.
    """
    for pattern in ("*.supervised", "*.alive"):
        for path in folder.path.glob(pattern):
            path.unlink(missing_ok=True)


def _is_only_announced(folder: TrialFolder, attempt: int) -> bool:
    traces = (folder.log_path(attempt), folder.journal_path(attempt), folder.exit_path(attempt))
    return folder.run_info_path(attempt).exists() and not any(trace.exists() for trace in traces)


def supervised_attempt(folder: TrialFolder) -> int | None:
    """The attempt with which the agent that runs now was started; a launcher may have begun others since."""
    return next((number for number in reversed(folder.attempts()) if is_alive(folder.supervised_path(number))), None)


def kill(folder: TrialFolder, attempt: int, settled: Settled | None = None) -> None:
    """Kills the attempt with all its processes, and returns when they are gone and its end is recorded.

    Does nothing if it has ended. It takes a second, in which a guardian looks for processes that were just being
    started. `attempt` is the number with which it was started. `settled` is recorded before, so that it is known to
    whoever sees the end.

    Raises `AgentNotFoundError` if it was not started by an agent on this machine.
    """
    agent = _agent(folder, attempt)
    if agent is None:
        return
    if settled is not None:
        folder.append_change(settled)
    # The guardian is one of them, and ends when nothing is left.
    processes = [agent, *agent.children(recursive=True)]
    agent.kill()
    while any(map(_is_living, processes)):
        time.sleep(_POLL_S)
    if folder.read_exit(max(folder.attempts())) is None:
        record_end(folder, -signal.SIGKILL)


def _agent(folder: TrialFolder, attempt: int) -> psutil.Process | None:
    """The attempt's agent; None if the attempt has ended."""
    lock = folder.supervised_path(attempt)
    deadline = time.monotonic() + _SIGNING_S
    while is_alive(lock):
        if (agent := _holder(lock)) is not None:
            return agent
        if time.monotonic() > deadline:
            raise AgentNotFoundError(folder.trial_id, attempt)
        time.sleep(_POLL_S)
    return None


def _holder(lock: Path) -> psutil.Process | None:
    """The process that holds the lock, if it is one of this machine; a pid alone may have come to mean another."""
    import psutil  # a twentieth of a second, which the start of an attempt should not pay

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(signed_by(lock) or 0)
        if is_alive(lock) and any(Path(file.path) == lock.resolve() for file in process.open_files()):
            return process
    return None


def _is_living(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
