"""Runs a trial in Slurm, and shows it while its jobs wait, run and follow each other."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence

import typer

from core_sdk.cli._failures import ExitCode
from core_sdk.cli._messages import say
from core_sdk.cli.running.attempt import exit_status
from core_sdk.cli.running.display import Display
from core_sdk.environment import Environment
from core_sdk.errors import SlurmError, TrialCompletedError, TrialInSlurmError
from core_sdk.processes import STOPS, CaughtSignals, signal_name
from core_sdk.slurm import commands
from core_sdk.slurm.commands import JobState
from core_sdk.slurm.script import JobRequest
from core_sdk.slurm.submission import note_end, script_of, settle, submit_new, submit_next
from core_sdk.tracking.attempts.command import command_here
from core_sdk.tracking.attempts.continuation import describe_end
from core_sdk.tracking.attempts.ending import read_end, read_settled
from core_sdk.tracking.attempts.starting import AttemptStart
from core_sdk.tracking.home import Home, TrialFolder
from core_sdk.tracking.states import AttemptEnd, trial_state

_LOOK_S = 0.2
# Slurm is asked six times a minute.
_ASK_S = 10.0
# How long after the end of a job its last words may take to come through the file system.
_LAST_WORDS_S = 15.0


def run_in_slurm(
    decide: Callable[[], AttemptStart], request: JobRequest, *, is_dry_run: bool, is_detached: bool
) -> int:
    """Submits the trial that `decide` begins, shows it to its end unless `is_detached`, and returns our exit status."""
    if problem := request.problem():
        raise typer.BadParameter(problem)
    if is_dry_run:
        home = Home.create(Environment.read().home)
        typer.echo(script_of(request, home, max(home.trial_ids(), default=0) + 1), nl=False)
        return ExitCode.OK
    folder, job_id = submit_new(decide, request)
    return _show(folder, job_id, is_detached=is_detached)


def resume_in_slurm(folder: TrialFolder, argv: Sequence[str], *, is_again: bool, is_detached: bool) -> int:
    """Submits the next job of a trial that runs in Slurm, like `run_in_slurm`. `argv` replaces the trial's command."""
    job, trial_id = folder.read_slurm_job(), folder.trial_id
    if job is not None and not job.is_over:
        state = commands.states([job.job_id]).get(job.job_id)
        if state is not None and not state.is_over:
            raise TrialInSlurmError(trial_id, "resume", job.job_id, f"`scancel {job.job_id}` ends it")
    if folder.attempts() and not is_again and read_end(folder, None).outcome == "completed":
        raise TrialCompletedError(trial_id, 0)
    if argv:
        folder.write_command(command_here(argv))
    return _show(folder, submit_next(folder), is_detached=is_detached)


def _show(folder: TrialFolder, job_id: int, *, is_detached: bool) -> int:
    say(
        f"trial {folder.trial_id} is job {job_id} of Slurm: `core-sdk trial logs {folder.trial_id} --follow` shows its "
        f"output, `trial pause` stops it, `scancel {job_id}` ends it"
    )
    if is_detached:
        typer.echo(folder.trial_id)
        return ExitCode.OK
    return _Follower(folder, job_id).follow()


def request_of(num_nodes: int, num_slots: int | None, options: tuple[str, ...]) -> JobRequest:
    """Returns the request of a command. Asks Slurm whether slots are GPUs. Raises `SlurmError`."""
    request = JobRequest(num_nodes, num_slots, options=options)
    if request.problem() or num_slots is None:
        return request
    return JobRequest(num_nodes, num_slots, commands.has_gpus(request.partition), options)


class _Follower:
    """Shows the jobs of a trial in the foreground. Killed or hung up, it leaves them alone."""

    def __init__(self, folder: TrialFolder, job_id: int) -> None:
        self._folder = folder
        self._job_id = job_id
        self._state: JobState | None = None
        """None if Slurm does not know the job, or was not asked yet."""
        self._asked_at = -_ASK_S
        self._shown = 0
        self._display: Display | None = None
        self._num_stops = 0
        self._caught = CaughtSignals()

    def follow(self) -> int:
        over_since = None
        while (record := self._folder.read_slurm_job()) is not None and not record.is_over:
            if record.job_id != self._job_id:
                self._job_id, self._asked_at = record.job_id, -_ASK_S
            if time.monotonic() - self._asked_at >= _ASK_S:
                self._ask()
            self._show_output()
            is_over = self._state is not None and self._state.is_over
            over_since = (over_since or time.monotonic()) if is_over else None
            if over_since is not None and time.monotonic() - over_since > _LAST_WORDS_S:
                self._give_up(self._state)
                break
            self._heed(self._caught.wait(_LOOK_S))
        self._show_output()
        return self._close()

    def _ask(self) -> None:
        """Asks Slurm for the job's state, and says what has changed."""
        self._asked_at = time.monotonic()
        try:
            state = commands.states([self._job_id]).get(self._job_id)
        except SlurmError as error:
            say(str(error))
            return
        before, self._state = self._state, state or JobState("gone", "Slurm does not know it any more")
        if self._state == before or self._state.is_over:
            return
        if self._state.is_waiting:
            say(f"job {self._job_id} waits: {self._state.reason or self._state.name}")
            if obstacle := self._state.obstacle:
                say(f"job {self._job_id} cannot start: {obstacle}. `scancel {self._job_id}` withdraws it")
        elif before is None or before.is_waiting:
            say(f"job {self._job_id} runs on {self._state.nodes}")

    def _show_output(self) -> None:
        """Shows the output of the newest attempt, after that of the one before."""
        with contextlib.suppress(FileNotFoundError):
            newest = max((n for n in self._folder.attempts() if self._folder.log_path(n).exists()), default=0)
            if newest > self._shown:
                source = os.open(self._folder.log_path(newest), os.O_RDONLY | os.O_CLOEXEC)
                if self._display is not None:
                    self._display.close(f"attempt {newest} goes on, in job {self._job_id}")
                self._display, self._shown = Display(source, self._caught.is_stop_asked), newest

    def _heed(self, number: int | None) -> None:
        match number:
            case signal.SIGHUP:
                say(f"hung up: trial {self._folder.trial_id} goes on in Slurm")
                os._exit(ExitCode.OK)
            case int() if number in STOPS:
                self._num_stops += 1
                self._stop(signal_name(number))

    def _stop(self, name: str) -> None:
        """Cancels a job that waits. Asks a training that runs to stop, and cancels its job at the second time."""
        attempt = self._folder.running_attempt()
        if attempt is not None and self._num_stops == 1:
            self._folder.request_stop(attempt, f"{name} to core-sdk run")
            say(f"{name}: waiting for trial {self._folder.trial_id} to save and stop; once more cancels the job")
            return
        commands.cancel(self._job_id)
        if attempt is None:
            settle(self._folder, "CANCELED", f"{name} while job {self._job_id} was waiting")
            note_end(self._folder, self._job_id)

    def _give_up(self, state: JobState | None) -> None:
        """Records the end of a job that has recorded none itself."""
        name = "gone" if state is None else state.name
        because = f" ({state.reason})" if state is not None and state.reason else ""
        words = f"job {self._job_id} has ended as {name}{because}"
        if name == "CANCELLED":
            settle(
                self._folder, "CANCELED", f"Slurm's job {self._job_id} was canceled with scancel, and not by Core SDK"
            )
        elif not self._folder.attempts():
            words += (
                f", and nothing of it has reached the home {self._folder.home_root}, which must lie on a file system "
                "that all nodes share, at the same path (CORE_SDK_HOME)"
            )
            settle(self._folder, "PAUSED", words)
        say(words)
        note_end(self._folder, self._job_id)

    def _close(self) -> int:
        folder = self._folder
        end = read_end(folder, None) if folder.attempts() else None
        settled = read_settled(folder)
        state, reason = trial_state(end or AttemptEnd(), False, settled)
        words = (
            f"trial {folder.trial_id} {describe_end(folder, state, reason)}"
            if end
            else f"trial {folder.trial_id}: {reason}"
        )
        if self._display is not None:
            self._display.close(words)
        else:
            say(words)
        return exit_status(state, end.exit_code if end else None)
