"""Runs one attempt, in the foreground or detached, and tells the user of its start and its end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from core_sdk._execution.agent.starting import Agent
from core_sdk._ground.environment import is_quiet
from core_sdk._ground.records import TrialInfo
from core_sdk._home.attempts.continuation import Continuation, describe_end, what_is_hidden
from core_sdk._home.attempts.ending import further_trials, read_end, read_settled
from core_sdk._home.attempts.running import await_end
from core_sdk._home.attempts.starting import AttemptStart
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.rows import TrialState
from core_sdk._home.states import trial_state, with_losses
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.cli.running.display import Display, say_or_drop
from core_sdk._interfaces.cli.running.terminal import (
    catch_signals,
    hand_on_lines,
    hand_on_signals,
    in_background,
    open_screen,
)
from core_sdk._machine.processes import exit_code, signal_name
from core_sdk.errors import CommandError

_STDIN = 0
_STDOUT = 1
# How long to wait for the end of a script whose agent was killed.
_ORPHAN_S = 5.0


def run_attempt(agent: Agent, decide: Callable[[], AttemptStart], *, is_detached: bool) -> int:
    """Lets the agent start the attempt that `decide` returns, and returns our exit status.

    In the foreground it shows the attempt to its end. Detached it prints the trial's number. Raises what `decide`
    raises, or `CommandError`.
    """
    if not is_detached:
        return _run_in_foreground(agent, decide)
    from core_sdk._execution.agent.background import (
        start_in_background,  # the whole home, which the foreground does not need
    )

    start = start_in_background(agent, decide)
    _tell_start(start, "`core-sdk trial logs {} --follow` shows its output")
    click.echo(start.folder.trial_id)
    return ExitCode.OK


def keeping_sources(decide: Callable[..., AttemptStart], **options: Any) -> AttemptStart:
    """Decides, and keeps the sources in the directory of the variation's command."""
    from core_sdk._analysis.evidence import keep_sources

    start = decide(**options)
    if start.command is not None and (problem := keep_sources(start.folder, Path(start.command.cwd))):
        say(f"trial {start.folder.trial_id}: {problem}")
    return start


def _run_in_foreground(agent: Agent, decide: Callable[[], AttemptStart]) -> int:
    start = decide()
    _tell_start(start, "`core-sdk trial describe {}` shows it")
    trial_id, newest = start.folder.trial_id, max(Home(start.folder.home_root).trial_ids())
    folder = TrialFolder(start.folder.home_root, trial_id)
    caught = catch_signals()
    try:
        display = _start(start, agent, caught.is_stop_asked)
    except CommandError:
        start.withdraw()
        raise
    asked = trial_id, caught.is_stop_asked
    in_background(hand_on_signals, caught, agent, partial(_tell_stop, *asked), partial(_hang_up, *asked))
    ended = agent.wait()
    for problem in ended.problems:
        say(problem)
    if ended.code is None:
        await_end(folder, _ORPHAN_S)
        _kill_left(folder)
    # If nobody has told us the status, the process that killed what was left has recorded it.
    end = read_end(folder, ended.code)
    state, reason = trial_state(end, False, read_settled(folder))
    reason = with_losses(reason, end.num_dropped, end.drop_reason)
    further = further_trials(folder, newest)
    display.close(f"trial {trial_id} {describe_end(folder, state, reason)}")
    for further_id, (further_state, further_reason) in further.items():
        because = f" ({further_reason})" if further_reason else ""
        say(f"trial {further_id}, which its program has begun after it: {further_state}{because}")
    caught.ignore()
    if state == "COMPLETED" and any(each == "PAUSED" for each, _ in further.values()):
        return ExitCode.PAUSED
    if state == "COMPLETED" and end.num_dropped:
        return exit_code(end.exit_code or 0)  # the script's, which tells its starter of the loss
    return exit_status(state, end.exit_code)


def _tell_stop(trial_id: int, is_hurried: threading.Event, number: int) -> None:
    handed_on = f"{signal_name(number)} was handed on to the command of trial {trial_id}: waiting for it to end"
    say_or_drop(f"{handed_on}; `core-sdk trial kill {trial_id}` ends it at once", is_hurried)


def _hang_up(trial_id: int, is_hurried: threading.Event) -> None:
    """Leaves the training to its agent, which needs no terminal."""
    is_hurried.set()
    shown = f"`core-sdk trial logs {trial_id} --follow` shows its output"
    say_or_drop(f"hung up: trial {trial_id} trains on; {shown}", is_hurried)
    os._exit(exit_code(-signal.SIGHUP))


def _kill_left(folder: TrialFolder) -> None:
    """Ends what is left of an attempt whose agent was killed, and whose guardian was killed too, or is stopped."""
    from core_sdk._home.attempts.killing import kill, killable_attempt  # psutil takes a twentieth of a second

    if (left := killable_attempt(folder)) is not None:
        kill(folder, left)


def _start(start: AttemptStart, agent: Agent, is_hurried: threading.Event) -> Display:
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
        in_background(hand_on_lines, agent)
    return display


def _tell_start(start: AttemptStart, where: str) -> None:
    if start.continuation is not None:
        _tell_continuation(start.continuation, start.folder, start.info.trial)
    trial_id = start.folder.trial_id
    say(f"trial {trial_id}, attempt {start.number}: {where.format(trial_id)}, `trial pause` stops it")


def _tell_continuation(continuation: Continuation, folder: TrialFolder, trial: TrialInfo) -> None:
    for skipped in continuation.skipped:
        say(f"skipped checkpoint {skipped.storage_id}: {skipped.reason}")
    checkpoint = continuation.checkpoint
    if checkpoint is None:
        hidden = what_is_hidden(folder, trial.attempt - 1)
        say(f"trial {folder.trial_id} has no checkpoint: it begins from nothing{hidden}")
    else:
        names = [trial.keep] if isinstance(trial.keep, str) else trial.keep
        kept = "" if names is None else f", keep={','.join(names)}"
        say(f"continuing from checkpoint {checkpoint.storage_id} (steps_completed={checkpoint.steps_completed}{kept})")
        if not is_quiet() and Home(folder.home_root).is_first_resume():
            say("`core-sdk check-resume -- COMMAND` shows whether a training goes on exactly")


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
