"""One attempt in the foreground, with what the person is told of its start and its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from core_sdk.cli._display import Display
from core_sdk.cli._exit_codes import ExitCode, of_child
from core_sdk.cli._messages import say
from core_sdk.cli._runner import SignalRelay, run_attempt
from core_sdk.journal import read_journal
from core_sdk.records import CommandRecord, Ended, StopAcknowledged
from core_sdk.tracking import TrialFolder
from core_sdk.tracking.rows import TrialState
from core_sdk.tracking.states import AttemptEnd, error_told, trial_state

# `Ended` is a journal's last record, and its error text is bounded.
_TAIL_BYTES = 1 << 17


def run_in_foreground(folder: TrialFolder, attempt: int, command: CommandRecord, on_end: Callable[[], None]) -> int:
    """The exit status for our own process; `on_end` is called when the script has ended, before all is shown.

    Raises `CommandNotExecutableError`.
    """
    trial_id = folder.trial_id
    say(f"trial {trial_id}, attempt {attempt}: `core-sdk trial describe {trial_id}` shows it, `trial pause` stops it")
    relay = SignalRelay()
    display = Display(folder.log_path(attempt))
    returncode = run_attempt(folder, attempt, command, relay)
    # A launcher that starts its ranks anew begins further attempts.
    end = _recorded_end(folder, max(folder.attempts()), returncode)
    on_end()
    state, reason = trial_state(end, is_running=False)
    # Somebody who has asked for an end does not wait for a reader who has stalled.
    display.close(f"trial {trial_id} {describe_end(trial_id, state, reason)}", lambda: relay.num_received > 0)
    return exit_status(state, returncode)


def exit_status(state: TrialState, returncode: int) -> int:
    match state:
        case "COMPLETED":
            return ExitCode.OK
        case "PAUSED":
            return ExitCode.PAUSED
        case "CANCELED":
            return ExitCode.CANCELED
    # A script may have survived the error that its Context has recorded.
    return ExitCode.FAILURE if returncode in (ExitCode.OK, ExitCode.PAUSED) else of_child(returncode)


def describe_end(trial_id: int, state: TrialState, reason: str) -> str:
    """What became of the trial, to be read after its name."""
    because = f" ({reason})" if reason else ""
    match state:
        case "COMPLETED":
            return f"completed{because}"
        case "PAUSED":
            return f"is paused{because}: `core-sdk trial resume {trial_id}` goes on with it"
        case "CANCELED":
            return f"was canceled{because}: `core-sdk trial resume {trial_id}` goes on with it"
    return f"failed{because}: `core-sdk trial resume {trial_id}` starts it again"


def _recorded_end(folder: TrialFolder, attempt: int, returncode: int) -> AttemptEnd:
    """With the status alone, if the script did not use Core SDK, or died without a word."""
    journal = folder.journal_path(attempt)
    if not journal.exists():
        return AttemptEnd(exit_code=returncode)
    # A line cut by starting in its middle is a bad line, which here means nothing.
    tail = read_journal(journal, offset=max(0, journal.stat().st_size - _TAIL_BYTES))
    end = AttemptEnd(exit_code=returncode)
    for record in (record for chunk in tail for record in chunk.records):
        if isinstance(record, StopAcknowledged):
            end = dataclasses.replace(end, stop_source=record.source)
        elif isinstance(record, Ended):
            end = dataclasses.replace(end, outcome=record.outcome, error=record.error)
    return dataclasses.replace(end, error=error_told(end.error, folder.read_exit(attempt)))
