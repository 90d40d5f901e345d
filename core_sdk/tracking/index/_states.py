"""What state a trial is in, told from its newest attempt."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from core_sdk.tracking.rows import TrialState

# What a script that was stopped on request may exit with; 75 is EX_TEMPFAIL, "try again later".
_STOPPED_CODES = (0, 75)


@dataclass(frozen=True)
class AttemptEnd:
    """What is known of how an attempt ended; all None while it runs, and after a `kill -9`."""

    outcome: str | None = None
    error: str | None = None
    stop_source: str | None = None
    exit_code: int | None = None


def trial_state(end: AttemptEnd, is_running: bool) -> tuple[TrialState, str]:
    """The state, and the reason for it."""
    if end.outcome == "completed":
        return "COMPLETED", ""
    if end.outcome == "paused":
        return "PAUSED", end.stop_source or ""
    if end.outcome == "invalid_hp":
        return "COMPLETED", f"invalid hyperparameters: {_last_line(end.error)}".removesuffix(": ")
    if end.outcome == "error":
        return "ERROR", _last_line(end.error)
    if is_running:
        return "ACTIVE", ""
    return _state_by_exit(end)


def experiment_state(trials: set[TrialState]) -> TrialState:
    order: tuple[TrialState, ...] = ("ACTIVE", "PAUSED", "ERROR")
    return next((state for state in order if state in trials), "COMPLETED")


def _state_by_exit(end: AttemptEnd) -> tuple[TrialState, str]:
    if end.exit_code is None:
        return "ERROR", "its process ended without a word"
    if end.stop_source is not None and end.exit_code in _STOPPED_CODES:
        return "PAUSED", end.stop_source
    if end.exit_code == 0:
        return "COMPLETED", ""
    if end.exit_code < 0:
        return "ERROR", f"killed by {_signal_name(-end.exit_code)}"
    return "ERROR", f"its process exited with status {end.exit_code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(text: str | None) -> str:
    return (text or "").rstrip().rpartition("\n")[2]
