"""Executes one `fit()`: attempts of a trial, until the function has succeeded or may not be started again."""

from __future__ import annotations

import contextlib
import os
import traceback
from abc import ABC, abstractmethod

from core_sdk._execution.agent.driving import DrivenTrial
from core_sdk._execution.workers import Engine, named_as, open_engine
from core_sdk._execution.workers.shipping import Shipping
from core_sdk._ground.environment import num_ranks_started, run_info_used
from core_sdk._ground.error_lines import error_line
from core_sdk._home import Home, TrialFolder
from core_sdk._runtime.backends import usual_backend
from core_sdk._runtime.workers import TrainingWorkers
from core_sdk.core import DistributedContext
from core_sdk.errors import InvalidHP, TrainingFailedError, WorkerDiedError, WorkerFailedError
from core_sdk.train._configs import ScalingConfig, TrainRunContext
from core_sdk.train._driver.callbacks import ReportCallbacks
from core_sdk.train._driver.growing import growing
from core_sdk.train._driver.stops import forwarded_stops
from core_sdk.train._program import Program, Returned, TrainingProgram
from core_sdk.train._result import Result
from core_sdk.train._worker.callbacks import callbacks_path
from core_sdk.train._worker.running import execute, run
from core_sdk.train._worker.session import GROWTH

# What every worker imports until it calls the function.
_MODULES = (
    "cloudpickle",
    "torch.distributed",
    "core_sdk._distributed.joining",
    "core_sdk.loop._rng",
    "core_sdk._runtime.devices",
    "core_sdk.train._worker.running",
)

# The time that idle workers have to leave.
_LEAVING_S = 5.0

Failure = WorkerFailedError | WorkerDiedError


def fit(training: TrainingProgram) -> Result:
    """Trains until the function has ended on all workers.

    Raises `TrainingFailedError`, `KeyboardInterrupt`, or the error because of which the workers cannot be started.
    """
    scaling, num_ranks = training.scaling, num_ranks_started()
    if num_ranks > 1:
        if scaling.max_workers and not scaling.min_workers <= num_ranks <= scaling.max_workers:
            raise ValueError(
                f"num_workers is {scaling.num_workers!r}, and a launcher has started {num_ranks} ranks, which are the "
                f"workers: give {num_ranks}, or 0 for as many as there are"
            )
        return _fit_as_rank(training)
    return _WorkersFit(training).run() if scaling.max_workers else _HereFit(training).run()


class _Fit(ABC):
    """The attempts of one `fit()`."""

    def __init__(self, training: TrainingProgram) -> None:
        self._training = training
        self._num_failures = 0
        self._has_begun = False
        """Whether any attempt has called the function."""

    @abstractmethod
    def _attempt(self, trial: DrivenTrial) -> Returned | None:
        """Executes one attempt. Returns None if another one is to follow.

        Raises a `Failure`, after which another attempt may follow, or any other exception, which ends the fit.
        """

    def run(self) -> Result:
        run = self._training.run
        num_slots = max(1, self._training.scaling.max_workers)
        trial = DrivenTrial.begin(
            name=run.name, num_slots=num_slots, job_id=run.job_id, trial_id=self._training.restored_trial_id
        )
        while True:
            try:
                returned = self._attempt_and_tell(trial)
            except (WorkerFailedError, WorkerDiedError) as error:
                self._fail(trial, error)
            except BaseException as error:
                self._give_up(trial, error)
                raise
            else:
                is_over = returned is not None and not trial.is_going_back
                if returned is not None and returned.is_stopped and is_over:
                    trial.end_stopped()
                else:
                    trial.end(0)
                if returned is not None and is_over:
                    return _result(self._training, trial.folder, returned)
            trial.restart()

    def _attempt_and_tell(self, trial: DrivenTrial) -> Returned | None:
        training, folder = self._training, trial.folder
        context = TrainRunContext(folder.trial_id, training.run, training.scaling, training.config)
        path = callbacks_path(folder, trial.attempt)
        with contextlib.closing(ReportCallbacks(training.run.callbacks, context, path)) as callbacks:
            try:
                return self._attempt(trial)
            except (WorkerFailedError, WorkerDiedError) as error:
                callbacks.tell_failure({error.rank: _own_error(error)})
                raise

    def _fail(self, trial: DrivenTrial, error: Failure) -> None:
        """Records a failed attempt. Raises `TrainingFailedError` if the training may not be started again."""
        self._num_failures += 1
        text = _text(error)
        trial.end(1, text)
        max_failures = self._training.run.failure_config.max_failures
        if 0 <= max_failures < self._num_failures:
            failed = TrainingFailedError(trial.folder.trial_id, trial.attempt, text, self._num_failures)
            failed.worker_failures = {error.rank: _own_error(error)}
            raise failed from _own_error(error)

    def _give_up(self, trial: DrivenTrial, error: BaseException) -> None:
        if isinstance(error, Interrupted):
            trial.end(-error.number)
        elif self._has_begun or isinstance(error, KeyboardInterrupt):
            trial.end_by(error)
        else:
            trial.withdraw()


class _WorkersFit(_Fit):
    """The attempts of a `fit()` on workers that this program starts."""

    def __init__(self, training: TrainingProgram) -> None:
        super().__init__(training)
        self._signals: list[int] = []
        """The stop signals that have come in this attempt."""
        scaling = training.scaling
        self._workers = TrainingWorkers(
            _engine_of(scaling),
            scaling.min_workers,
            scaling.max_workers,
            backend=training.backend or usual_backend(scaling.use_gpu),
            timeout_s=training.timeout_s,
        )

    def run(self) -> Result:
        try:
            return super().run()
        except BaseException as error:
            self._workers.close(is_forced=True)
            if not isinstance(error, Interrupted):
                raise
            # The signal has its usual effect on this program. A handler may let the program live.
            os.kill(os.getpid(), error.number)
            raise SystemExit(128 + error.number) from error

    def _attempt(self, trial: DrivenTrial) -> Returned | None:
        """Executes one attempt on workers that are started for it."""
        workers, scaling = self._workers, self._training.scaling
        workers.engine.log_to(trial.log_path)
        workers.start()
        try:
            with (
                Shipping(workers.group, trial.folder, trial.attempt) as shipping,
                growing(workers, scaling.elastic_resize_monitor_interval_s, trial) as growth,
            ):
                returned = self._call(self._training.program(trial, shipping.spools))
        except BaseException:
            workers.end()
            raise
        if growth.is_set() and returned.is_stopped and not self._is_asked_to_stop(trial):
            workers.end(_LEAVING_S)
            return None
        if trial.is_going_back:
            workers.end(_LEAVING_S)
            return returned
        workers.close(is_forced=False)
        return returned

    def _is_asked_to_stop(self, trial: DrivenTrial) -> bool:
        """Returns whether somebody has asked for a stop, other than the one that lets the training grow."""
        request = trial.folder.read_stop_request(trial.attempt)
        return bool(self._signals) or (request is not None and request.source != GROWTH)

    def _call(self, program: Program) -> Returned:
        """Executes the program on all workers, and returns the result of rank 0."""
        # A stop may come as soon as the workers have the program, before `submit` has returned.
        with forwarded_stops(self._workers.group) as self._signals:
            try:
                with named_as("what the trainer was given", vars(program.training)):
                    call = self._workers.group.submit(run, program)
                self._has_begun = True
                return self._workers.results(call)[0]
            except WorkerDiedError as error:
                if self._signals:
                    raise Interrupted(self._signals[-1]) from error
                raise


class _HereFit(_Fit):
    """The attempts of a `fit()` in this process alone."""

    def _attempt(self, trial: DrivenTrial) -> Returned:
        program = self._training.program(trial)
        self._has_begun = True
        with run_info_used(trial.run_info_path):
            try:
                return execute(program, DistributedContext())
            except Exception as error:  # every exception of the function counts as a worker's failure
                lines = traceback.format_exception(error)
                function = f"{getattr(self._training.function, '__qualname__', self._training.function)}()"
                raise WorkerFailedError(0, function, lines[-1].strip(), "".join(lines)) from error


class Interrupted(BaseException):
    """Raised when the workers have died of a signal that was sent to this program."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"signal {number}")


def _fit_as_rank(training: TrainingProgram) -> Result:
    """Trains in this process, as one of the ranks of a launcher. Only the launcher restarts failed ranks."""
    from core_sdk._runtime.ranks import joined_ranks  # loads torch, which a rank needs

    program = training.program(None)
    with joined_ranks(None, training.backend) as ranks:
        returned = execute(program, ranks)
    return _result(training, Home(program.home).folder(returned.trial_id), returned)


def _engine_of(scaling: ScalingConfig) -> Engine:
    """Returns the engine that starts the workers.

    Raises `WorkerError` if they ask for too much, or `MissingDependencyError` without Ray.
    """
    return open_engine(
        scaling.engine,
        scaling.min_workers,
        address=scaling.address,
        num_cpus=scaling.num_cpus_per_worker,
        num_gpus=scaling.num_gpus_per_worker,
        resources=scaling.additional_resources_per_worker,
        strategy=scaling.placement_strategy,
        label_selector=scaling.label_selector,
        imported_modules=_MODULES,
    )


def _result(training: TrainingProgram, folder: TrialFolder, returned: Returned) -> Result:
    """Returns the result of a `fit()`. `returned` comes from rank 0, or from this rank under a launcher."""
    error = None if returned.invalid_hp is None else InvalidHP(returned.invalid_hp)
    return Result(
        folder,
        return_value=returned.value,
        error=error,
        is_stopped=returned.is_stopped,
        checkpoint_config=training.run.checkpoint_config,
    )


def _own_error(error: Failure) -> Exception:
    """Returns the exception that the function has raised, or the death of its worker."""
    cause = error.__cause__
    return cause if isinstance(cause, Exception) else error


def _text(error: Failure) -> str:
    """Returns the text of a failure. Its last line is a summary, which lists show."""
    if isinstance(error, WorkerDiedError):
        lines = "".join(f"{line}\n" for line in error.last_lines)
        return f"{lines}worker {error.rank} ({error.process}) {error.cause}"
    summary = error_line(error.error_text) or error.error_text
    return f"{error.traceback_text.rstrip()}\nworker {error.rank} failed: {summary}"
