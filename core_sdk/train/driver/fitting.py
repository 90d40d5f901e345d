"""One `fit()`: attempt after attempt of a trial, until the function has ended well or may not be started again."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core_sdk.agent.driving import DrivenTrial
from core_sdk.errors import (
    InvalidHP,
    NotPicklableError,
    TrainingFailedError,
    WorkerDiedError,
    WorkerError,
    WorkerFailedError,
    WorkersNotStartedError,
)
from core_sdk.train._configs import DataConfig, RunConfig, ScalingConfig
from core_sdk.train._program import Program, Returned
from core_sdk.train._result import Result
from core_sdk.train.driver.engines import engine_of
from core_sdk.train.driver.kept import Likeness, Workers
from core_sdk.train.driver.stops import ForwardedStops
from core_sdk.train.worker.running import run
from core_sdk.workers import WorkerGroup

# How long the other workers have after one has failed, and all after Ctrl-C, to leave their functions by themselves.
_AFTER_FAILURE_S = 0.5
_AFTER_INTERRUPT_S = 5.0


@dataclass(frozen=True)
class Training:
    """What a trainer was given."""

    function: Callable[..., Any]
    config: Mapping[str, Any] | None = None
    datasets: Mapping[str, Any] = field(default_factory=dict)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    run: RunConfig = field(default_factory=RunConfig)
    data: DataConfig = field(default_factory=DataConfig)
    backend: str | None = None
    timeout_s: float = 1800.0

    def program(self, trial: DrivenTrial) -> Program:
        return Program(
            function=self.function,
            config=self.config,
            datasets=self.datasets,
            datasets_to_split=frozenset(name for name in self.datasets if self.data.is_split(name)),
            home=trial.folder.home_root.absolute(),
            run_info=trial.run_info_path,
            experiment=self.run.name,
            storage=self.run.storage_path,
            use_gpu=self.scaling.use_gpu,
            num_gpus=int(self.scaling.num_gpus_per_worker),
            checkpoint_config=self.run.checkpoint_config,
            log_level=self.run.logging_config.log_level,
            has_callbacks=bool(self.run.callbacks),
        )


class Fit:
    """The attempts of one `fit()`."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._likeness = Likeness.of_this_program(training.scaling, training.backend, training.timeout_s)
        self._num_failures = 0
        self._workers: Workers | None = None
        self._stops = ForwardedStops()

    def run(self) -> Result:
        """Raises `TrainingFailedError`; what the workers are not started by; or `KeyboardInterrupt`."""
        training = self._training
        trial = DrivenTrial.begin(
            name=training.run.name, num_slots=training.scaling.max_workers, job_id=training.run.job_id
        )
        try:
            with self._stops:
                result = self._run(trial)
        except BaseException:
            self._end_workers(0)
            self._stops.die()
            raise
        if self._workers is not None:
            self._workers.keep()
        return result

    def _run(self, trial: DrivenTrial) -> Result:
        while True:
            try:
                returned = self._attempt(trial)
            except (WorkerFailedError, WorkerDiedError) as error:
                self._fail(trial, error)
            except KeyboardInterrupt:
                trial.end(-signal.SIGINT)
                raise
            except BaseException as error:
                self._give_up(trial, error)
                raise
            else:
                trial.end(0)
                return _result(trial, returned)

    def _attempt(self, trial: DrivenTrial) -> list[Returned]:
        group = self._started_workers(trial)
        call = group.submit(run, self._training.program(trial))
        try:
            return call.results()
        except KeyboardInterrupt:
            group.interrupt()
            call.wait_for_all(_AFTER_INTERRUPT_S)
            raise
        except WorkerFailedError:
            call.wait_for_all(_AFTER_FAILURE_S)
            raise

    def _fail(self, trial: DrivenTrial, error: WorkerFailedError | WorkerDiedError) -> None:
        """Begins the next attempt, or raises."""
        self._num_failures += 1
        self._end_workers(0)
        if self._stops.received is not None:
            trial.end(-self._stops.received)
            raise error
        text = _text(error)
        trial.end(1, text)
        max_failures = self._training.run.failure_config.max_failures
        if 0 <= max_failures < self._num_failures:
            failed = TrainingFailedError(trial.folder.trial_id, trial.attempt, text, self._num_failures)
            failed.worker_failures = {error.rank: error}
            raise failed from error.__cause__ or error
        trial.restart()

    def _give_up(self, trial: DrivenTrial, error: BaseException) -> None:
        """Of an attempt that never ran nothing stays."""
        if isinstance(error, (NotPicklableError, WorkersNotStartedError, ValueError)) and not self._num_failures:
            trial.withdraw()
        else:
            trial.end(1, f"{type(error).__name__}: {error}")

    def _started_workers(self, trial: DrivenTrial) -> WorkerGroup:
        training = self._training
        if self._workers is None:
            self._workers = Workers.taken(self._likeness)
        if self._workers is None:
            engine = engine_of(training.scaling)
            engine.log_to(trial.log_path)
            group = WorkerGroup(training.scaling.max_workers, engine)
            self._workers = Workers(self._likeness, engine, group)
            self._stops.group = group
            group.init_torch(training.backend, training.timeout_s)
        self._workers.engine.log_to(trial.log_path)
        self._stops.group = self._workers.group
        return self._workers.group

    def _end_workers(self, grace_s: float) -> None:
        self._stops.group = None
        if self._workers is not None:
            with contextlib.suppress(WorkerError):
                self._workers.close(grace_s)
            self._workers = None


def _result(trial: DrivenTrial, returned: list[Returned]) -> Result:
    invalid_hp = next((each.invalid_hp for each in returned if each.invalid_hp is not None), None)
    return Result(
        trial.folder,
        return_value=returned[0].value,
        error=None if invalid_hp is None else InvalidHP(invalid_hp),
        is_stopped=any(each.is_stopped for each in returned),
    )


def _text(error: WorkerFailedError | WorkerDiedError) -> str:
    """With its last line in the end, which lists show."""
    if isinstance(error, WorkerDiedError):
        lines = "".join(f"\n    {line}" for line in error.last_lines)
        ending = f"\n{lines}\n" if lines else ""
        return f"{ending}worker {error.rank} ({error.process}) {error.cause}"
    return f"{error.traceback_text.rstrip()}\nworker {error.rank} failed: {error.error_text}"
