"""Kills attempts that run on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

from core_sdk._ground.alive import is_alive, signed_by
from core_sdk._ground.records import Settled
from core_sdk._home.attempts.ending import read_end, record_end
from core_sdk._home.folders import TrialFolder
from core_sdk._home.next_attempt import left_attempt, mark_of_attempt
from core_sdk._machine.processes import end_marked, guardians_of, is_any_marked
from core_sdk.errors import AttemptError

_POLL_S = 0.05
# An agent signs the attempt's lock as soon as it has got it.
_SIGNING_S = 2.0
# The time within which guardians end, and the locks of killed processes are released.
_LAST_S = 10.0


def killable_attempt(folder: TrialFolder) -> int | None:
    """Returns the number of the attempt that has processes on this machine, or None.

    It is the number with which the attempt was started; a launcher may have begun others since. Either the attempt's
    agent runs, or a killed agent has left processes behind.
    """
    supervised = (number for number in reversed(folder.attempts()) if is_alive(folder.supervised_path(number)))
    return next(supervised, None) or left_attempt(folder)


def kill(folder: TrialFolder, attempt: int, settled: Settled | None = None) -> None:
    """Kills the attempt with all its processes, and returns when they are gone and its end is recorded.

    Processes that a killed agent and its guardian have left are killed, too. Does nothing if nothing of the attempt
    runs. Takes about a second, to find processes that were just being started. `attempt` is the number with which the
    attempt was started. `settled` is recorded first, so that every reader of the end knows it. If the script has
    already recorded how it ended, that stands: only what is left of its processes is ended.

    Raises `AttemptError` if it runs on another machine, or was not started by an agent, or if the system cannot kill a
    process.
    """
    mark, lock = str(mark_of_attempt(folder, attempt)), folder.supervised_path(attempt)
    holder = _holder(lock, mark)
    if holder is None and not is_any_marked(mark) and not guardians_of(mark):
        if is_alive(lock):
            raise no_agent(folder.trial_id, attempt)
        return
    has_ended = folder.exists() and read_end(folder, None).outcome is not None
    if settled is not None and not has_ended:
        folder.append_change(settled)
    killed, ending = ([], []) if holder is None else _processes_of(holder)
    for process in killed:
        with contextlib.suppress(psutil.Error):
            process.kill()
    left = end_marked(mark)
    for guardian in guardians_of(mark):  # it has nothing left to end, and may be stopped
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(guardian, signal.SIGKILL)
    deadline = time.monotonic() + _LAST_S
    while (is_alive(lock) or any(map(_is_living, (*killed, *ending)))) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if left := left or [process.pid for process in killed if _is_living(process)]:
        raise AttemptError(
            f"cannot kill trial {folder.trial_id}: {', '.join(map(str, left))} of its attempt {attempt} did not end "
            "when killed. Such a process waits for a device or a file system that does not answer; it ends when that "
            "does, or when the machine is started again."
        )
    if is_alive(lock):
        raise no_agent(folder.trial_id, attempt)
    # The trial may have been removed meanwhile.
    if not has_ended and folder.exists() and folder.read_exit(max(folder.attempts())) is None:
        record_end(folder, -signal.SIGKILL)


def no_agent(trial_id: int, attempt: int) -> AttemptError:
    return AttemptError(
        f"cannot kill trial {trial_id}: its attempt {attempt} runs, but on this machine there is no agent that "
        f"`core-sdk run` has started for it. End its process, or pause it with `core-sdk trial pause {trial_id}`."
    )


def _holder(lock: Path, mark: str) -> psutil.Process | None:
    """Returns the agent, or the program that executes the attempt; None if it is dead, or on another machine."""
    deadline = time.monotonic() + _SIGNING_S
    while is_alive(lock) and time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(signed_by(lock) or 0)
            # The pid alone may have come to mean another process.
            if is_alive(lock) and any(Path(file.path) == lock.resolve() for file in process.open_files()):
                return process
        if is_any_marked(mark):
            return None
        time.sleep(_POLL_S)
    return None


def _processes_of(holder: psutil.Process) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Returns the processes to kill, and those that then end by themselves, such as guardians.

    The processes to kill are the holder and its descendants in its session. An agent has none in its session.
    """
    try:
        session = os.getsid(holder.pid)
        descendants = [each for each in holder.children(recursive=True) if _is_in_session(each.pid, session)]
        return [holder, *descendants], [each for each in holder.children() if each not in descendants]
    except (psutil.Error, ProcessLookupError):
        return [], []


def _is_in_session(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session
    except ProcessLookupError:
        return False


def _is_living(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
