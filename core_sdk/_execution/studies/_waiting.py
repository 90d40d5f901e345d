"""Waits for tries, by looking at their records."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from core_sdk._execution.studies._line import find_in_line, this_host
from core_sdk._execution.studies._serving import ensure_served
from core_sdk._home import Home
from core_sdk._home.attempts.ending import read_settled
from core_sdk._home.finding.tries import TryState
from core_sdk._home.states import WAITS_FOR_SLOTS

_POLL_S = 0.2
_SERVED_S = 2.0

ENDED, FAILED, STOPPED, TIMED_OUT = 0, 1, 75, 124
"""The exit statuses of `core-sdk try` and `core-sdk wait`."""


def await_tries(
    home: Home, trials: Mapping[int, Sequence[int]], timeout_s: float = math.inf, *, is_any_enough: bool = False
) -> Iterator[int]:
    """Yields each try, by the ids of its trials, when all of them have ended, until the time is over.

    With `is_any_enough` it ends after those that have ended at the same time as the first.
    """
    deadline = time.monotonic() + timeout_s
    waiting = {try_id: set(ids) for try_id, ids in trials.items()}
    served = -math.inf
    while waiting:
        if time.monotonic() - served > _SERVED_S:
            served = time.monotonic()
            ensure_served(home)
        for ids in waiting.values():
            ids -= {each for each in ids if _has_ended(home, each)}
        over = [try_id for try_id, ids in waiting.items() if not ids]
        for try_id in over:
            del waiting[try_id]
            yield try_id
        if (over and is_any_enough) or time.monotonic() >= deadline:
            return
        if waiting:
            time.sleep(_POLL_S)


def exit_status_of_try(states: Collection[TryState]) -> int:
    """Returns the exit status for tries in these states."""
    if "failed" in states:
        return FAILED
    if {"queued", "running"} & set(states):
        return TIMED_OUT
    return STOPPED if "stopped" in states else ENDED


def _has_ended(home: Home, trial_id: int) -> bool:
    """Returns whether a trial has left the line, and so has ended for good: a killed agent's trial goes on.

    Of another machine, which may be gone, it is enough that the trial has ended: somebody may have resumed it here.
    """
    folder, waiting = home.folder(trial_id), find_in_line(home, trial_id)
    if folder.running_attempt() is not None:
        return False
    if waiting is None or waiting.host == this_host():
        return waiting is None
    settled = read_settled(folder)
    return bool(folder.attempts()) if settled is None else not settled.reason.startswith(WAITS_FOR_SLOTS)
