"""Decides how an attempt has ended. Lists, and the last line and exit status of `core-sdk run`, use the same rule.

There are two sources: what the script records as it leaves its Context, and the exit status that its agent records. A
failure in one of them is a failure, except after a stop: a script that has stopped as asked and left its Context can be
resumed, and a stop makes other launchers than ours (torchrun, mpirun) exit with a failure of their own. Otherwise the
script's record counts, and without one the exit status. If whoever stopped or killed the attempt has settled the
trial's state, that takes precedence over both.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import msgspec

from core_sdk._ground.records import ExitRecord, Settled

if TYPE_CHECKING:
    from core_sdk._home.rows import TrialState
    from core_sdk._home.time_spent import Gap

TRY_AGAIN = 75
"""EX_TEMPFAIL of sysexits.h: the exit status of launchers, and of some scripts, after a stop."""

SAVE_FAILED = 74
"""EX_IOERR of sysexits.h: the exit status of a script whose save has failed after a stop, with a checkpoint before."""

WAITS_IN_SLURM = "waits in Slurm's queue"
"""The beginning of the reason with which a trial is settled as PAUSED while its next job waits: it is QUEUED."""

WAITS_FOR_SLOTS = "waits for slots"
"""The beginning of the reason with which a trial is settled as PAUSED until its first attempt has slots: it is
QUEUED."""

GOES_ON = "goes on with its experiment"
"""The beginning of the reason with which a trial is settled as PAUSED between two attempts that its experiment begins.
It is QUEUED while the experiment is not paused."""

_FAILURE = 1
_SHELL_BASE = 128
_INTERRUPTED = (-signal.SIGINT, _SHELL_BASE + signal.SIGINT)
_STOP_SIGNALS = (-signal.SIGTERM, -signal.SIGUSR1)
STOP_CODES = (*_STOP_SIGNALS, _SHELL_BASE + signal.SIGTERM, _SHELL_BASE + signal.SIGUSR1)
"""The exit statuses of a process that a stop signal has ended. After the script has left its Context they are good."""

# The outcomes of a script that has left its Context without an error.
_LEFT = ("completed", "paused")


class AttemptEnd(msgspec.Struct, frozen=True):
    """The known facts about an attempt's end. All are None while it runs, and after a `kill -9` of script and agent."""

    outcome: str | None = None
    error: str | None = None
    """The script's error, or what `error_told` makes of it."""
    stop_source: str | None = None
    exit_code: int | None = None
    """-N for death by signal N."""
    exit_problem: str | None = None
    """The reason why an exit code that was recorded cannot be read."""
    num_dropped: int = 0
    """The records that the attempt's ranks could not write."""
    drop_reason: str = ""


def trial_state(end: AttemptEnd, is_running: bool, settled: Settled | None = None) -> tuple[TrialState, str]:
    """Returns the state and the reason for it. `settled` is what was settled since the attempt began."""
    if settled is not None:
        waits = settled.state == "PAUSED" and settled.reason.startswith((WAITS_IN_SLURM, WAITS_FOR_SLOTS))
        return "QUEUED" if waits else settled.state, settled.reason
    if end.outcome == "invalid_hp":
        return "COMPLETED", f"invalid hyperparameters: {_first_line(end.error)}".removesuffix(": ")
    if end.outcome == "error":
        return "ERROR", _last_line(end.error)
    if end.outcome == "canceled" or (end.exit_code in _INTERRUPTED and end.outcome != "paused"):
        return "CANCELED", "interrupted by Ctrl-C, or SIGINT"
    if end.outcome is None and is_running:
        return "ACTIVE", ""
    if end.outcome is None and end.exit_code is None:
        return "ERROR", end.exit_problem or "its process ended without a word"
    has_left = end.outcome in _LEFT
    is_stop = end.outcome == "paused" or (not has_left and end.stop_source is not None)
    if end.exit_code not in _good_statuses(end, has_left=has_left, is_stop=is_stop):
        failure = _last_line(end.error) or _failure(end.exit_code or 0)
        failure += ", after it had left its Context" if has_left else ""
        if end.outcome == "paused":
            return "PAUSED", "; ".join(filter(None, (end.stop_source, failure)))
        return "ERROR", failure
    return ("PAUSED", end.stop_source or "") if is_stop else ("COMPLETED", "")


def gap_of_settled(settled: Settled) -> Gap:
    """Returns what the time is that follows something that was settled about a trial."""
    if settled.state == "PAUSED" and settled.reason.startswith(WAITS_IN_SLURM):
        return "waiting"
    is_failure = settled.state == "ERROR" or settled.reason.startswith(GOES_ON)
    return "down" if is_failure else "stopped"


def gap_of_end(end: AttemptEnd) -> Gap:
    """Returns what the time is that follows the end of an attempt about which nothing was settled."""
    return "down" if trial_state(end, is_running=False)[0] == "ERROR" else "stopped"


def with_losses(reason: str, num_dropped: int, drop_reason: str) -> str:
    """Returns the reason for a state, with the records that were lost: that changes no state, and must be seen."""
    if not num_dropped:
        return reason
    why = re.sub(r"^\[Errno \d+\] ", "", drop_reason)
    lost = f"{num_dropped} records lost: {why}".removesuffix(": ")
    return f"{reason}; {lost}" if reason else lost


def error_told(error: str | None, exit_record: ExitRecord | None) -> str | None:
    """Returns the script's error together with the launcher's reason.

    If a rank was killed, the reason comes last, where tables show it: the chief's error is only a consequence.
    """
    if exit_record is None or not exit_record.reason:
        return error
    if error is None:
        return exit_record.reason
    is_kill = exit_record.code > _SHELL_BASE
    return f"{error.rstrip()}\n{exit_record.reason}" if is_kill and exit_record.reason not in error else error


def _good_statuses(end: AttemptEnd, *, has_left: bool, is_stop: bool) -> tuple[int | None, ...]:
    """Returns the exit statuses that are no failure. A status of 75 means a stop, so it is a failure without one."""
    stopped = (TRY_AGAIN,) if is_stop else ()
    if has_left:
        # A shell around the script may die of the Ctrl-C. `ReportsDroppedError` ends a script with 1.
        return (None, 0, *stopped, *STOP_CODES, *_INTERRUPTED, *((_FAILURE,) if end.num_dropped else ()))
    return (None, 0, *stopped, *(_STOP_SIGNALS if end.outcome == "exited" else ()))


def experiment_state(trials: set[TrialState]) -> TrialState:
    order: tuple[TrialState, ...] = ("ACTIVE", "QUEUED", "PAUSED", "ERROR", "CANCELED")
    return next((state for state in order if state in trials), "COMPLETED")


def _failure(exit_code: int) -> str:
    if exit_code < 0:
        return f"killed by {_signal_name(-exit_code)}"
    return f"its process exited with status {exit_code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _last_line(text: str | None) -> str:
    return (text or "").rstrip().rpartition("\n")[2]
