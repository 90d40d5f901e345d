"""`core-sdk trial profile`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import click

from core_sdk._home.profiles import read_answer, request_profile
from core_sdk._interfaces.cli._home import open_home_of
from core_sdk._interfaces.cli._ids import TrialId
from core_sdk._interfaces.signatures import Option
from core_sdk.errors import TrialNotRunningError

_POLL_S = 0.1


def profile(
    trial_id: TrialId,
    steps: Annotated[int, Option(metavar="N", help="How many steps.")] = 5,
    output: Annotated[Path | None, Option("--output", "-o", metavar="FILE", help="Copy the trace there.")] = None,
    timeout: Annotated[float, Option(metavar="SECONDS", help="How long to wait for it.")] = 600.0,
) -> None:
    """Trace the next steps of a running trial with torch's profiler, and print where the trace is.

    core-sdk trial profile 7 --steps 5

    The script needs no change: a step is what lies between two calls of should_preempt() of rank 0. The trace is kept
    with the trial; https://ui.perfetto.dev shows it.
    """
    if steps < 1:
        raise click.BadParameter("there is at least one step to trace")
    home, number = open_home_of(trial_id)
    folder = home.trial(number)
    if (attempt := folder.running_attempt()) is None:
        raise TrialNotRunningError(trial_id, "profile")
    request, deadline = request_profile(folder, attempt, steps), time.monotonic() + timeout
    while (answer := read_answer(folder, attempt, request)) is None:
        if time.monotonic() >= deadline or folder.running_attempt() != attempt:
            raise click.ClickException(
                f"trial {trial_id} has not traced {steps} steps: its script must call should_preempt() between steps"
            )
        time.sleep(_POLL_S)
    if answer.problem:
        raise click.ClickException(f"trial {trial_id} has traced nothing: {answer.problem}")
    if output is not None:
        shutil.copyfile(answer.path, output)
    click.echo(output or answer.path)
