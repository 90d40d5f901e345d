"""Runs a trial in Slurm, and shows it while its jobs wait, run and follow each other."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence

import click

from core_sdk._execution.slurm.following import JobFollower
from core_sdk._execution.slurm.script import JobRequest
from core_sdk._execution.slurm.submission import on_gpus, script_of, submit_again, submit_new
from core_sdk._ground.environment import Environment
from core_sdk._home.attempts.continuation import describe_end
from core_sdk._home.attempts.ending import read_end, read_settled
from core_sdk._home.attempts.starting import AttemptStart
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.states import AttemptEnd, trial_state
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.cli.running.attempt import exit_status
from core_sdk._interfaces.cli.running.display import Display
from core_sdk._machine.processes import STOPS, CaughtSignals, signal_name

_LOOK_S = 0.2


def run_in_slurm(
    decide: Callable[[], AttemptStart], request: JobRequest, *, is_dry_run: bool, is_detached: bool
) -> int:
    """Submits the trial that `decide` begins, shows it to its end unless `is_detached`, and returns our exit status."""
    if problem := request.problem():
        raise click.BadParameter(problem)
    request = on_gpus(request)
    if is_dry_run:
        home = Home.create(Environment.read().home)
        click.echo(script_of(request, home, max(home.trial_ids(), default=0) + 1), nl=False)
        return ExitCode.OK
    folder, job_id = submit_new(decide, request)
    return _show(folder, job_id, is_detached=is_detached)


def resume_in_slurm(folder: TrialFolder, argv: Sequence[str], *, is_again: bool, is_detached: bool) -> int:
    """Submits the next job of a trial that runs in Slurm, like `run_in_slurm`. `argv` replaces the trial's command."""
    return _show(folder, submit_again(folder, argv, is_again=is_again), is_detached=is_detached)


def _show(folder: TrialFolder, job_id: str, *, is_detached: bool) -> int:
    say(
        f"trial {folder.trial_id} is job {job_id} of Slurm: `core-sdk trial logs {folder.trial_id} --follow` shows its "
        f"output, `trial pause` stops it, `scancel {job_id}` ends it"
    )
    if is_detached:
        click.echo(folder.trial_id)
        return ExitCode.OK
    caught = CaughtSignals()
    follower, output = JobFollower(folder, job_id, say), _Output(folder, caught)
    while follower.look():
        output.show(follower.job.job_id)
        match caught.wait(_LOOK_S):
            case signal.SIGHUP:
                say(f"hung up: trial {folder.trial_id} goes on in Slurm")
                os._exit(ExitCode.OK)
            case int() as number if number in STOPS:
                follower.stop(signal_name(number))
    output.show(follower.job.job_id)
    end = read_end(folder, None) if folder.attempts() else None
    state, reason = trial_state(end or AttemptEnd(), False, read_settled(folder))
    output.close(f"trial {folder.trial_id} {describe_end(folder, state, reason) if end else f'{state}: {reason}'}")
    return exit_status(state, end.exit_code if end else None)


class _Output:
    """Shows the output of each attempt, one after the other."""

    def __init__(self, folder: TrialFolder, caught: CaughtSignals) -> None:
        self._folder = folder
        self._caught = caught
        self._shown = 0
        self._display: Display | None = None

    def show(self, job_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            newest = max((n for n in self._folder.attempts() if self._folder.log_path(n).exists()), default=0)
            if newest > self._shown:
                source = os.open(self._folder.log_path(newest), os.O_RDONLY | os.O_CLOEXEC)
                if self._display is not None:
                    self.close(f"attempt {newest} goes on, in job {job_id}")
                self._display, self._shown = Display(source, self._caught.is_stop_asked), newest

    def close(self, words: str) -> None:
        if self._display is None:
            say(words)
        else:
            self._display.close(words)
