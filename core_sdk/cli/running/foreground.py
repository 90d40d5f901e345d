"""Runs one attempt in the foreground, and tells the user of its start and its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from core_sdk.agent.starting import Agent
from core_sdk.cli._failures import ExitCode
from core_sdk.cli._messages import say
from core_sdk.cli.running.display import Display
from core_sdk.cli.running.terminal import catch_signals, hand_on_lines, hand_on_signals, open_screen
from core_sdk.errors import CommandError
from core_sdk.processes import exit_code
from core_sdk.tracking.attempts.ending import read_end, read_settled
from core_sdk.tracking.attempts.leftovers import left_attempt
from core_sdk.tracking.attempts.running import await_end
from core_sdk.tracking.attempts.starting import Start
from core_sdk.tracking.home import TrialFolder
from core_sdk.tracking.rows import TrialState
from core_sdk.tracking.states import trial_state

_STDIN = 0
_STDOUT = 1
# For the end of a script whose agent was killed.
_ORPHAN_S = 5.0


def run_in_foreground(agent: Agent, decide: Callable[[], Start]) -> int:
    """Lets the agent start the attempt that `decide` returns, shows it to its end, and returns our exit status.

    Raises what `decide` raises, or `CommandNotExecutableError`.
    """
    start = decide()
    _tell_continuation(start)
    trial_id = start.folder.trial_id
    say(
        f"trial {trial_id}, attempt {start.number}: "
        f"`core-sdk trial describe {trial_id}` shows it, `trial pause` stops it"
    )
    caught = catch_signals()
    try:
        display = _start(start, agent, caught.is_stop_asked)
    except CommandError:
        start.withdraw()
        raise
    hand_on_signals(caught, agent)
    ended = agent.wait()
    for problem in ended.problems:
        say(problem)
    if ended.code is None:
        await_end(start.folder, _ORPHAN_S)
        _kill_left(start.folder)
    state, reason = trial_state(read_end(start.folder, ended.code), False, read_settled(start.folder))
    display.close(f"trial {trial_id} {describe_end(trial_id, state, reason)}")
    return exit_status(state, ended.code)


def _kill_left(folder: TrialFolder) -> None:
    """Ends what is left of an attempt whose agent was killed together with its guardian."""
    if (left := left_attempt(folder)) is not None:
        from core_sdk.tracking.attempts.killing import kill  # psutil takes a twentieth of a second

        kill(folder, left)


def _start(start: Start, agent: Agent, is_hurried: threading.Event) -> Display:
    source = os.open(start.folder.log_path(start.number), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not os.isatty(_STDOUT):
        display = Display(source, is_hurried)
        agent.start(start, stdin=_STDIN)
        return display
    # The script sees a terminal exactly if our stdout is one.
    source, screen = open_screen()
    display = Display(source, is_hurried)
    is_typed = os.isatty(_STDIN)
    agent.start(start, stdin=None if is_typed else _STDIN, screen=screen)
    os.close(screen.output)
    if is_typed:
        hand_on_lines(agent)
    return display


def _tell_continuation(start: Start) -> None:
    if start.continuation is None:
        return
    for skipped in start.continuation.skipped:
        say(f"skipped checkpoint {skipped.storage_id}: {skipped.reason}")
    checkpoint = start.continuation.checkpoint
    if checkpoint is None:
        trial_id = start.folder.trial_id
        say(f"trial {trial_id} has no checkpoint: it begins anew, and what it has reported is superseded")
    else:
        say(f"continuing from checkpoint {checkpoint.storage_id} (steps_completed={checkpoint.steps_completed})")


def exit_status(state: TrialState, code: int | None) -> int:
    match state:
        case "COMPLETED":
            return ExitCode.OK
        case "PAUSED":
            return ExitCode.PAUSED
        case "CANCELED":
            return ExitCode.CANCELED
    # A script may end well, or by a status that means something else, although its Context has recorded an error.
    other_states = (None, ExitCode.OK, ExitCode.PAUSED, ExitCode.CANCELED)
    return ExitCode.FAILURE if code in other_states else exit_code(code)


def describe_end(trial_id: int, state: TrialState, reason: str) -> str:
    """What became of the trial; the sentence continues its name."""
    because = f" ({reason})" if reason else ""
    match state:
        case "COMPLETED":
            return f"completed{because}"
        case "PAUSED":
            return f"is paused{because}: `core-sdk trial resume {trial_id}` goes on with it"
        case "CANCELED":
            return f"was canceled{because}: `core-sdk trial resume {trial_id}` goes on with it"
    return f"failed{because}: `core-sdk trial resume {trial_id}` starts it again"
