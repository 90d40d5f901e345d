"""Finds processes of an attempt that still run although its agent and the agent's guardian were killed."""

from __future__ import annotations

from core_sdk.environment import Mark
from core_sdk.processes import is_any_marked
from core_sdk.tracking.home import TrialFolder


def mark_of_attempt(folder: TrialFolder, attempt: int) -> Mark:
    """Returns the mark of all processes that the attempt's agent has started."""
    return Mark.of(folder.run_info_path(attempt))


def left_attempt(folder: TrialFolder) -> int | None:
    """Returns the number of the attempt that a killed agent and its guardian left running on this machine, or None.

    An attempt whose end is recorded may have left processes behind on purpose.
    """
    attempts = folder.attempts()
    if not attempts or folder.read_exit(attempts[-1]) is not None:
        return None
    return next((number for number in reversed(attempts) if is_any_marked(str(mark_of_attempt(folder, number)))), None)
