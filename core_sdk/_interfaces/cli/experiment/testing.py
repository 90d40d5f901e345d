"""`core-sdk experiment create --test`: one trial shows that the script does what a search needs, and is deleted.

With `--local` a trainer is in test mode: it trains and validates one batch, saves a checkpoint and ends.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence

import click

from core_sdk._execution.experiments._trial import TrialStateMachine
from core_sdk._execution.experiments.following import Follower
from core_sdk._execution.experiments.submission import Submitted
from core_sdk._execution.master.local import local_master
from core_sdk._execution.steering import experiments
from core_sdk._ground.config import load, to_mapping
from core_sdk._ground.records import ValidationRead, format_number
from core_sdk._home import Home, open_view
from core_sdk._home.rows import TrialRow
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.text import HarmlessOutput
from core_sdk.errors import CoreSDKError, ExperimentError, MasterError, TrialRunningError

_LAST_BYTES = 4096
_STOP_S = 60
_RECORDED_WITHIN_S = 10.0
_POLL_S = 0.05


class TestFailedError(CoreSDKError):
    """The trial did not do what a search needs."""


def single_trial(text: str, source: str, overrides: Sequence[str], *, is_local: bool) -> list[str]:
    """Returns the overrides that turn any search into one trial without restarts. Raises `InvalidConfigError`."""
    searcher = to_mapping(load(text, source=source, overrides=overrides).config)["searcher"]
    # A trainer in test mode ends early, so that a searcher must not wait for a length.
    keys = ("metric", "smaller_is_better") if is_local else ("metric", "smaller_is_better", "max_length")
    kept = {key: searcher[key] for key in keys if key in searcher}
    return [
        *overrides,
        f"searcher={json.dumps({'name': 'single'} | kept)}",
        "max_restarts=0",
        f"preemption_timeout={_STOP_S}",
    ]


def run_test(home: Home, submit: Callable[[Home], Submitted], *, is_local: bool, num_places: int | None) -> int:
    """Runs the trial until it has reported, stopped and resumed, and deletes it; returns the exit status.

    With `is_local` no master is started in the background. Raises the errors of `local_master`.
    """
    with local_master(home, num_places) if is_local else contextlib.nullcontext():
        return _run(home, submit(home))


def _run(home: Home, submitted: Submitted) -> int:
    test = _Test(Follower(home, submitted.experiment_id))
    try:
        test.run()
    except TestFailedError as error:
        click.echo(HarmlessOutput().feed(test.last_output()), err=True)
        say(f"{error}. Above are the last lines of its output.")
        return ExitCode.FAILURE
    finally:
        test.clean_up()
    click.echo("the test is passed, and its trial is deleted")
    return ExitCode.OK


class _Test:
    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._experiment = follower.experiment
        self._home = follower.home
        self._num_reports = 0

    def run(self) -> None:
        """Runs the trial through the test. Raises `TestFailedError`."""
        self._await(lambda: bool(self._experiment.trials) and (self._trial.num_attempts > 0 or self._trial.is_over))
        self._pass("the trial has started")
        self._await(lambda: bool(self._follower.best) or self._trial.is_over)
        metric = self._follower.searcher.metric
        if not self._follower.best:
            raise TestFailedError(
                f"the trial has ended ({self._end()}) and has never reported {metric!r} as validation"
            )
        self._pass(f"it has reported {metric}: {format_number(self._follower.best[self._trial.request_id])}")
        self._steer(experiments.pause)
        self._await(lambda: self._trial.is_over or (self._experiment.is_paused and not self._experiment.num_running))
        if not self._trial.is_over:
            self._go_on()
        if self._trial.state == "ERROR":
            raise TestFailedError(f"the trial has failed: {self._end()}")
        if self._trial.is_over and self._row().latest_checkpoint is not None:
            self._pass("it has ended with a checkpoint")

    def _row(self) -> TrialRow:
        with open_view(self._home) as view:
            return view.trial(self._trial.trial_id or 0)

    def _go_on(self) -> None:
        row = self._row()
        if row.latest_checkpoint is None:
            raise TestFailedError("the trial has stopped when it was asked to, but has stored no checkpoint")
        self._pass(f"it has stopped when it was asked to, with a checkpoint at step {row.steps_completed}")
        self._steer(experiments.activate)
        num_reports = self._num_reports
        self._await(lambda: self._trial.is_over or self._num_reports > num_reports)
        if self._trial.state != "ERROR":
            self._pass("it has gone on from its checkpoint")

    def last_output(self) -> bytes:
        """Returns the end of the newest attempt's output."""
        folder = self._home.folder(self._trial.trial_id or 0)
        log = folder.log_path(self._trial.last_attempt)
        return log.read_bytes()[-_LAST_BYTES:] if log.exists() else b""

    def clean_up(self) -> None:
        """Ends the trial, and deletes all records of it."""
        if not self._experiment.is_ended:
            self._steer(experiments.kill)
            self._await(lambda: False)
        deadline = time.monotonic() + _RECORDED_WITHIN_S
        while True:
            try:
                experiments.delete(self._home, self._experiment.experiment_id, force=True)
                return
            except (ExperimentError, TrialRunningError):
                # The event of the end comes first. The master writes it into the experiment's record a moment later.
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    @property
    def _trial(self) -> TrialStateMachine:
        return next(iter(self._experiment.trials.values()))

    def _await(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds, or the experiment has ended."""
        for events in self._follower.follow():
            self._num_reports += sum(isinstance(event, ValidationRead) for event in events)
            if condition():
                return

    def _steer(self, verb: Callable[[Home, int, str], object]) -> None:
        with contextlib.suppress(MasterError):  # it has ended meanwhile
            verb(self._home, self._experiment.experiment_id, "core-sdk experiment create --test")

    def _end(self) -> str:
        return f"{self._trial.state}: {self._trial.reason}" if self._trial.reason else str(self._trial.state)

    def _pass(self, words: str) -> None:
        click.echo(f"ok: {words}")
