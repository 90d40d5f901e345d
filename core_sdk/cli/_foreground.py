"""One attempt in the foreground, with what the person is told of its start and its end."""

from __future__ import annotations

import signal
from collections.abc import Callable

from core_sdk.cli._display import Display
from core_sdk.cli._exit_codes import ExitCode, of_child
from core_sdk.cli._messages import say
from core_sdk.cli._runner import SignalRelay, run_attempt
from core_sdk.journal import read_journal
from core_sdk.records import CommandRecord, Ended, Outcome
from core_sdk.tracking import TrialFolder

# `Ended` is a journal's last record, and its error text is bounded.
_TAIL_BYTES = 1 << 17
# Of a script that had recorded its pause when the next such signal reached it, or a launcher.
_STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGUSR1)
# With these a launcher that was asked to stop, too late, may still say that there is more to do.
_OVER: tuple[Outcome, ...] = ("completed", "invalid_hp")


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
    outcome = _recorded_outcome(folder, max(folder.attempts()))
    on_end()
    # Somebody who has asked for an end does not wait for a reader who has stalled.
    display.close(f"trial {trial_id} {describe_end(trial_id, outcome, returncode)}", lambda: relay.num_received > 0)
    return exit_status(outcome, returncode)


def exit_status(outcome: Outcome | None, returncode: int) -> int:
    if outcome == "paused" and returncode in (0, *_STOPPED):
        return ExitCode.PAUSED
    if outcome in _OVER and returncode == ExitCode.PAUSED:
        return 0
    return of_child(returncode)


def describe_end(trial_id: int, outcome: Outcome | None, returncode: int) -> str:
    """What became of the trial, to be read after its name."""
    if outcome == "paused":
        return f"is paused: `core-sdk trial resume {trial_id}` goes on with it"
    if returncode == 0 or (outcome in _OVER and returncode == ExitCode.PAUSED):
        return "completed"
    if returncode < 0:
        return f"was killed by {_signal_name(-returncode)}: `core-sdk trial resume {trial_id}` starts it again"
    return f"failed with status {returncode}: `core-sdk trial resume {trial_id}` starts it again"


def _recorded_outcome(folder: TrialFolder, attempt: int) -> Outcome | None:
    """None if the script did not use Core SDK, or died without a word."""
    journal = folder.journal_path(attempt)
    if not journal.exists():
        return None
    # A line cut by starting in its middle is a bad line, which here means nothing.
    tail = read_journal(journal, offset=max(0, journal.stat().st_size - _TAIL_BYTES))
    ends = [record.outcome for chunk in tail for record in chunk.records if isinstance(record, Ended)]
    return ends[-1] if ends else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
