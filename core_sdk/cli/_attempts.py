"""Starts attempts in the foreground, and says what the person needs to know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core_sdk.agent.starting import Agent
from core_sdk.cli._foreground import run_in_foreground
from core_sdk.cli._messages import say
from core_sdk.cli._pause import await_stop
from core_sdk.errors import CommandError
from core_sdk.tracking import Home
from core_sdk.tracking.attempts.continuation import Continuation
from core_sdk.tracking.attempts.starting import Start, begin, continue_from, resume


def start_trial(
    home_path: Path,
    argv: Sequence[str],
    *,
    name: str | None,
    labels: Sequence[str],
    hparams: Mapping[str, Any],
    num_slots: int | None,
) -> int:
    """Runs the command as a new trial's first attempt; returns the exit status for this process."""
    agent = Agent()  # it comes up meanwhile
    return _run(begin(home_path, argv, name=name, labels=labels, hparams=hparams, num_slots=num_slots), agent)


def resume_trial(home_path: Path, trial_id: int, argv: Sequence[str] = (), *, is_again: bool = False) -> int:
    folder = Home.open(home_path).trial(trial_id)
    await_stop(folder)
    agent = Agent()
    start = resume(folder, argv, is_again=is_again)
    _tell_continuation(trial_id, start.continuation)
    return _run(start, agent)


def continue_trial(home_path: Path, trial_id: int) -> int:
    agent = Agent()
    start = continue_from(Home.open(home_path).trial(trial_id))
    _tell_continuation(trial_id, start.continuation)
    return _run(start, agent)


def _run(start: Start, agent: Agent) -> int:
    try:
        return run_in_foreground(start, agent)
    except CommandError:
        start.withdraw()
        raise


def _tell_continuation(trial_id: int, continuation: Continuation | None) -> None:
    if continuation is None:
        return
    for skipped in continuation.skipped:
        say(f"skipped checkpoint {skipped.storage_id}: {skipped.reason}")
    checkpoint = continuation.checkpoint
    if checkpoint is None:
        say(f"trial {trial_id} has no checkpoint: it begins anew, and what it has reported is superseded")
    else:
        say(f"continuing from checkpoint {checkpoint.storage_id} (steps_completed={checkpoint.steps_completed})")
