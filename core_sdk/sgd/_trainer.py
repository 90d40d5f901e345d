"""The trainer that a program uses."""

from __future__ import annotations

import io
import logging
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, Self, TypeVar
from weakref import WeakSet

import torch

from core_sdk import core
from core_sdk._execution.workers import Engine, open_engine
from core_sdk._ground.environment import get_cluster_info
from core_sdk._ground.files import write_atomically
from core_sdk._ground.records import Keep, with_given
from core_sdk._home.states import TRY_AGAIN
from core_sdk._runtime.backends import usual_backend
from core_sdk.errors import StateMismatchError, WorkerDiedError, WorkerError, WorkerFailedError
from core_sdk.loop._keeping import kept_parts
from core_sdk.sgd._checkpoints import STATE_FILE, Checkpoints, TrainerMark
from core_sdk.sgd._creators import Creators, Function, SchedulerStep, as_given, as_list
from core_sdk.sgd._metrics import Measured, Metrics, flat, mean
from core_sdk.sgd._operator import TrainingOperator
from core_sdk.sgd._replicas import Replicas
from core_sdk.sgd._runner import PARTS, RefusedError, Runner, RunnerProgress, TrainedPass
from core_sdk.sgd._trial import TrainerTrial

logger = logging.getLogger("core_sdk.sgd")

P = ParamSpec("P")
T = TypeVar("T")

# What every worker imports before it gets the creators.
_MODULES = ["cloudpickle", "torch.distributed", Runner.__module__]


class PyTorchTrainer:
    """Trains a model on several workers, one pass over the data for each call of `train()`.

    The trainer belongs to a trial. The metrics of `train()` and `validate()` are also reported there, and the trainer's
    checkpoints are kept there. If the trial is resumed, the trainer continues from the newest checkpoint, and `epoch`
    says how far it is.

    Use it as a context manager, or call `shutdown()`.
    """

    _contexts_in_use: ClassVar[WeakSet[core.Context]] = WeakSet()
    """The Contexts that have had a trainer."""

    def __init__(
        self,
        model_creator: Function | None,
        data_creator: Function | None,
        optimizer_creator: Function | None,
        loss_creator: Function | None,
        scheduler_creator: Function | None = None,
        train_function: Function | None = None,
        validation_function: Function | Literal[False] | None = None,
        initialization_hook: Function | None = None,
        config: Mapping[str, Any] | None = None,
        dataloader_config: Mapping[str, Any] | None = None,
        num_replicas: int = 1,
        use_gpu: bool = False,
        batch_size: int = 16,
        backend: Literal["auto", "nccl", "gloo"] = "auto",
        use_fp16: bool = False,
        apex_args: Mapping[str, Any] | None = None,
        scheduler_step_freq: SchedulerStep = "batch",
        *,
        training_operator_cls: type[TrainingOperator] | None = None,
        engine: Literal["local", "ray"] | Engine | None = None,
        name: str | None = None,
        job_id: str | None = None,
        seed: int | None = None,
        trial_name: str | None = None,
        labels: Sequence[str] | None = None,
        notes: str | None = None,
        keep: Keep | None = None,
        context: core.Context | None = None,
    ) -> None:
        """Starts the workers, and calls the creators on each of them.

        `model_creator(config)` returns one or more modules, `data_creator(config)` a dataset to train on and, if
        wanted, one to validate on, `optimizer_creator(models, config)` one or more optimizers, and
        `scheduler_creator(optimizers, config)` one or more schedulers. `loss_creator` is a class of losses, or a
        function of `config`. `initialization_hook(runner)` is called on each worker before the creators.

        `train_function(config, models, batches, criterion, optimizers, schedulers)` replaces the built-in pass over the
        data, and is needed for several models or optimizers; `validation_function(config, models, batches, criterion,
        schedulers)` replaces the validation, and False means none. Each returns a dict of numbers. Without a
        `scheduler_creator` they get no `schedulers`.

        `training_operator_cls` is a class of `TrainingOperator`, whose methods take the place of these two functions.
        Its `setup()` may register what the creators would make, which are None then.

        `batch_size` counts the samples of one batch on all workers together; each worker takes its part of it.
        `dataloader_config` has further options of torch's `DataLoader`; the training data are shuffled unless it says
        `shuffle=False`. `scheduler_step_freq` says when the built-in pass steps schedulers: after each "batch", each
        "epoch", or never, with "manual" or None; with a training operator that has schedulers None is refused.

        `use_fp16` computes in mixed precision by `torch.amp`. `backend` goes to torch.distributed. Hyperparameters
        with which the trial was started, by a search for example, replace those in `config`. The workers are processes
        of this machine, or those of a Ray cluster: by default if `ray.init()` has been called.

        The trial is in the experiment `name`; by default that is the name of the script. Each start of a program with
        the same `job_id` continues the same trial. The initial weights, the order of the data and all random numbers
        follow from the trial's seed, which is `seed` for a new trial, or else a random one. `trial_name`, `labels` and
        `notes` are those of `core.init()`. With a `context`, the trainer belongs to the trial of that Context, which
        can have only one trainer, and has a seed, a name, labels and notes already.

        A trial that is resumed goes on from its newest checkpoint. `keep` says what it takes from there: "all";
        "model", the weights alone; or a set of "models", "optimizers", "lr_schedulers" and "training", which is the
        number of passes, the place in the data and the random numbers. The rest begins from nothing. The default is
        "all"; from the checkpoint of another trial it is "model". `core-sdk trial continue --keep` has precedence.

        Raises `ValueError` for options that exclude each other, or that a training operator does not allow, or for a
        Context that has had its trainer;
        `WorkersNotStartedError`, `NotPicklableError`, or `WorkerFailedError` with the error of a creator.
        """
        creators = Creators(
            model_creator=model_creator,
            data_creator=data_creator,
            optimizer_creator=optimizer_creator,
            loss_creator=loss_creator,
            scheduler_creator=scheduler_creator,
            train_function=train_function,
            validation_function=validation_function,
            initialization_hook=initialization_hook,
            config=dict(config or {}),
            dataloader_config=dict(dataloader_config or {}),
            batch_size=batch_size,
            use_gpu=use_gpu,
            use_fp16=use_fp16,
            scheduler_step_freq=scheduler_step_freq,
            training_operator_cls=training_operator_cls,
        )
        _check_workers(num_replicas, batch_size, engine)
        if keep is not None:
            kept_parts(keep, PARTS, models=["models"])
        if apex_args:
            _warn_of_apex(apex_args)
        of_new_trial: dict[str, Any] = {"seed": seed, "trial_name": trial_name, "labels": labels, "notes": notes}
        if context is not None and (own := [each for each in of_new_trial if of_new_trial[each] is not None]):
            raise ValueError(
                f"{own[0]} and context were given: pass the {own[0]} to the core.init() that makes the Context"
            )
        self._trial: TrainerTrial | None = None
        if context is None:
            self._trial = TrainerTrial(config or {}, name=name, job_id=job_id, num_slots=num_replicas, **of_new_trial)
            context = self._trial.context
            hparams = self._trial.given_hparams
        else:
            if context in self._contexts_in_use:
                raise ValueError(
                    f"the Context of trial {context.info.trial.trial_id} has had its trainer. Go on with that one, or "
                    "pass no context=: then each trainer is a trial of its own."
                )
            hparams = {} if (given := get_cluster_info()) is None else given.trial.hparams
        self.context = context
        self._checkpoints = Checkpoints(context)
        self._replicas: Replicas | None = None
        self._progress = RunnerProgress(0, 0, 0)
        self._last_pass: tuple[int | None, Mapping[str, Any] | None] = (None, None)
        """The arguments of the last pass, with which it is repeated if its state is lost."""
        self._mark = TrainerMark(num_changes=0, steps=0)
        """The steps are the batches of the trial. Their number also grows after `restore()` has gone back."""
        self._validated_at: int | None = None
        self.config = with_given(creators.config, hparams)
        info = context.info.trial
        self._creators = replace(creators, config=self.config, seed=info.trial_seed, trial_id=info.trial_id)
        try:
            opened = open_engine(engine, num_replicas, num_gpus=1 if use_gpu else 0, imported_modules=_MODULES)
            if self._trial is not None:
                opened.log_to(self._trial.log_path)
            backend_name = usual_backend(use_gpu) if backend == "auto" else backend
            self._replicas = Replicas(opened, num_replicas, self._creators, backend_name)
            self._resume(keep)
        except BaseException as error:
            self._close(error)
            if isinstance(error.__cause__, RefusedError):
                raise error.__cause__ from None
            raise
        self._contexts_in_use.add(context)

    @property
    def epoch(self) -> int:
        """The number of complete passes over the data in all attempts of the trial."""
        return self._progress.epoch

    @property
    def num_workers(self) -> int:
        """The number of running workers. It is less than `num_replicas` if there was no room for all of them."""
        return 0 if self._replicas is None else self._replicas.size

    def train(
        self,
        max_retries: int = 0,
        checkpoint: str | os.PathLike[str] | None = "auto",
        *,
        num_steps: int | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> Metrics:
        """Trains one pass over the data, and returns its metrics: means over the samples of all workers.

        `num_steps` ends the call after so many batches instead. The next call goes on with the batch after them, and
        `epoch` counts complete passes. `info` is passed on to a training operator.

        If a worker dies, the others are ended. As many as there is room for, at most `num_replicas`, then repeat the
        pass from the last good state, so that no sample counts twice. This happens up to `max_retries` times. If there
        is no room for any worker, the trainer waits for at most 17 minutes. A later call starts the missing workers as
        soon as there is room.

        With `max_retries` and "auto", the states before and after the pass are kept in checkpoints of the trial. The
        one after it is stored while the program goes on. If a worker dies before it is stored, that pass is repeated,
        too. `checkpoint` may also be a file of `save()` from which the pass is repeated. An error of the train function
        is not retried. It ends the workers, and the next call starts them again with the last state that was kept.

        If the trial should stop, and the program never asks `context.preempt.should_preempt()`, this saves a checkpoint
        and ends the program by `SystemExit` in place of another pass.

        Raises `ValueError` for several models without a train function, `WorkerFailedError`, `WorkerDiedError` after
        the last retry, or `WorkersNotStartedError`; the last three are `RuntimeError`s.
        """
        if max_retries < 0:
            raise ValueError(f"max_retries is {max_retries}; it must be at least 0")
        if num_steps is not None and num_steps < 1:
            raise ValueError(f"num_steps is {num_steps}; it must be at least 1")
        if max_retries and not checkpoint:
            raise ValueError(
                "max_retries need a state to begin again from: pass checkpoint='auto', or a file of save()"
            )
        self._heed_stop()
        replicas = self._running("train")
        keeps_states = max_retries > 0 and checkpoint == "auto"
        if keeps_states:
            self._keep_current("train", wait=not self._checkpoints.lead_to(self._mark))
        elif max_retries:
            _read_state_file(checkpoint or "")  # a file that cannot be read must fail now rather than after a death
        for num_failed in range(max_retries + 1):
            try:
                if num_failed and keeps_states:
                    self._start_again(replicas)
                elif num_failed:
                    replicas.start_from(_read_state_file(checkpoint or ""))
                elif replicas.can_grow():
                    replicas.start_from(self._hold(replicas)())
                trained = replicas.call(Runner.train_pass, num_steps, info)
                read_state = self._hold(replicas) if keeps_states else None
                break
            except WorkerDiedError as error:
                num_calls = self._progress.num_calls
                logger.warning("pass %d has failed: worker %d %s", num_calls + 1, error.rank, error.cause)
                death = error
            except BaseException as error:
                if isinstance(error.__cause__, RefusedError):
                    raise error.__cause__ from None
                try:
                    self._checkpoints.settle_or_lose()  # the workers still have its state
                finally:
                    replicas.end()
                raise
        else:
            raise self._death("train", death, max_retries + 1) from death
        # A train function may use its own data.
        self._mark = self._mark._replace(steps=self._mark.steps + max(1, trained[0].num_batches))
        self._progress, self._last_pass = trained[0].progress, (num_steps, info)
        metrics = self._report_training(trained)
        # A resume from this checkpoint must find the report.
        if read_state is not None:
            self._begin_checkpoint(read_state)
        return metrics

    def validate(self, *, num_steps: int | None = None, info: Mapping[str, Any] | None = None) -> Metrics:
        """Validates on all workers, each on its part of the data, and returns means over all samples.

        `num_steps` and `info` are the same as for `train()`.

        If nothing was trained since the last validation, the trial does not record it again.

        Raises `ValueError` without data to validate on, or for several models without a validation function.
        """
        if self._creators.validation_function is False:
            return {}
        measured = self._call("validate", Runner.validate, num_steps, info)
        metrics = self._combined(measured, "validation_function()")
        if self._validated_at != self._mark.steps:
            self.context.train.report_validation_metrics(self._mark.steps, {**flat(metrics), "epoch": self.epoch})
            self._validated_at = self._mark.steps
        return metrics

    def update_scheduler(self, metric: float) -> None:
        """Calls `scheduler.step(metric)` on all workers, as `ReduceLROnPlateau` needs it."""
        self._change("update_scheduler", Runner.step_schedulers, metric)

    def apply_all_workers(self, fn: Callable[[Runner], T]) -> list[T]:
        """Calls `fn(runner)` on each worker, and returns the results in the order of the ranks.

        The runner has `models`, `optimizers`, `schedulers`, `criterion`, `config`, `train_loader`,
        `validation_loader`, `device`, `epoch`, `rank` and `world_size`.
        """
        return self._change("apply_all_workers", fn)

    def get_model(self) -> Any:
        """Returns the trained model on the CPU of this process, or a list if the creator makes several models."""
        if self._creators.model_creator is None:
            return self._call("get_model", Runner.copied_models)[0]
        content = torch.load(io.BytesIO(self._read_state("get_model")), map_location="cpu", weights_only=True)
        models = as_list(self._creators.model_creator(self.config))
        for index, model in enumerate(models):
            model.load_state_dict(content["objects"][f"model_{index}"])
        return as_given(models)

    def save(self, checkpoint: str | os.PathLike[str] | None = None, *, wait: bool = True) -> str:
        """Saves the complete state of the training in this file, or by default as a checkpoint of the trial.

        Returns the path, or the storage id of the checkpoint. Either is written completely or not at all, and holds the
        models, optimizers and schedulers in the format of `torch.save()`. With `wait=False` a checkpoint is stored in
        the background; the next call that needs it waits for it, and raises the error if that has failed.
        """
        if checkpoint is not None:
            write_atomically(Path(checkpoint), self._read_state("save"))
            return os.fspath(checkpoint)
        self._keep_current("save", wait=wait)
        return self._checkpoints.ask_for_last()

    def restore(self, checkpoint: str | os.PathLike[str], *, keep: Keep = "all") -> None:
        """Continues from a file of `save()`, which may come from another number of workers.

        `keep` says what is taken from the file, in the words of `PyTorchTrainer(keep=…)`. The rest stays as it is; it
        begins from nothing if the workers have ended. The file is read by `torch.load(weights_only=True)`.

        Raises `StateMismatchError` if it holds other models, and `ValueError` if it is not a file of `save()`.
        """
        kept_parts(keep, PARTS, models=["models"])
        state = _read_state_file(checkpoint)
        self._checkpoints.settle_or_lose()
        try:
            if self._replicas is not None and self._replicas.are_ended:
                self._replicas.start_from(state, keep)
            self._go_on_from(state, keep)
        except WorkerFailedError as error:
            if isinstance(error.__cause__, StateMismatchError):
                raise error.__cause__ from None
            raise

    load = restore

    def shutdown(self, force: bool = False) -> None:
        """Ends the workers, with `force` at once, and the trial unless a Context was given. May be called again."""
        if force and self._replicas is not None:
            self._replicas.end()
        self._close(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    def _resume(self, keep: Keep | None) -> None:
        """Continues from the checkpoint with which this attempt of the trial begins."""
        info = self.context.info
        if info.latest_checkpoint is None:
            return
        keep = self.context.checkpoint.what_to_keep(keep)
        if keep is not None:
            kept_parts(keep, PARTS, models=["models"])
        with self.context.checkpoint.restore_path(info.latest_checkpoint) as directory:
            if not (directory / STATE_FILE).exists():
                return
            is_own = self._go_on_from((directory / STATE_FILE).read_bytes(), keep)
        if is_own:
            metadata = self.context.checkpoint.get_metadata(info.latest_checkpoint)
            self._mark = self._mark._replace(steps=max(self._mark.steps, metadata["steps_completed"]))

    def _go_on_from(self, state: bytes, keep: Keep | None) -> bool:
        """Loads a state into all workers, and returns whether it is one of the trial's own."""
        restored = self._change("restore", Runner.read_state, state, keep)[0]
        self._progress = restored.progress
        self._mark = self._mark._replace(steps=max(self._mark.steps, restored.progress.batches))
        return restored.is_own

    def _keep_current(self, action: str, *, wait: bool) -> None:
        """Stores the state of the workers in a checkpoint, unless the last one has it."""
        try:
            if not self._checkpoints.has(self._mark):
                self._begin_checkpoint(self._hold(self._running(action)))
            if wait:
                self._checkpoints.settle()
        except WorkerDiedError as error:
            raise self._death(action, error) from error

    def _begin_checkpoint(self, read_state: Callable[[], bytes]) -> None:
        metadata = {"steps_completed": self._mark.steps, "epoch": self.epoch}
        self._checkpoints.begin(read_state, metadata, self._mark)

    def _hold(self, replicas: Replicas) -> Callable[[], bytes]:
        """Copies the state of the workers, and returns a function that reads the copy, once the last copy is stored."""
        self._checkpoints.settle_or_lose()
        return replicas.hold_state()

    def _change(
        self, action: str, function: Callable[Concatenate[Runner, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        """Makes a call that changes the state of the workers."""
        self._running(action)
        self._mark = self._mark._replace(num_changes=self._mark.num_changes + 1)
        return self._call(action, function, *args, **kwargs)

    def _call(
        self, action: str, function: Callable[Concatenate[Runner, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        try:
            return self._running(action).call(function, *args, **kwargs)
        except WorkerDiedError as error:
            raise self._death(action, error) from error
        except WorkerFailedError as error:
            if isinstance(error.__cause__, RefusedError):
                raise error.__cause__ from None
            raise

    def _read_state(self, action: str) -> bytes:
        try:
            return self._hold(self._running(action))()
        except WorkerDiedError as error:
            raise self._death(action, error) from error

    def _death(self, action: str, error: WorkerDiedError, num_tries: int = 1) -> WorkerDiedError:
        self._checkpoints.settle_or_lose()
        tries = f"The call was tried {num_tries} times. " if num_tries > 1 else ""
        advice = (
            "The next call starts all workers again, with the last state that was kept."
            if self._checkpoints.lead_to(self._mark)
            else "There is no state to go on from: restore() a file of save(), or make a new trainer; "
            "train(max_retries=1) keeps states."
        )
        return WorkerDiedError(
            error.rank, error.process, error.cause, error.last_lines, call=f"{action}()", advice=f"{tries}{advice}"
        )

    def _heed_stop(self) -> None:
        """Ends the program if the trial should stop, and the program does not ask whether it should."""
        preempt = self.context.preempt
        if preempt.is_asked or not preempt.is_stop_agreed:
            return
        self._keep_current("train", wait=True)
        preempt.acknowledge_preemption_signal()
        logger.warning(
            "stopped (%s) after pass %d, whose state is stored: the program ends, since it does not ask "
            "context.preempt.should_preempt() itself",
            preempt.stop_source, self.epoch,
        )  # fmt: skip
        raise SystemExit(TRY_AGAIN)

    def _report_training(self, trained: list[TrainedPass]) -> Metrics:
        measured = [each.measured for each in trained]
        times = {name: max(each.times[name] for each in trained) for name in trained[0].times}
        metrics = {
            **self._combined(measured, "train_function()"),
            "epoch": self.epoch,
            "batch_processed": sum(each.num_samples for each in measured),
            **times,
        }
        self.context.train.report_training_metrics(self._mark.steps, flat(metrics))
        return metrics

    def _combined(self, measured: list[Measured], function: str) -> Metrics:
        """Returns the metrics of all workers together."""
        return mean(measured, function)

    def _running(self, action: str) -> Replicas:
        """Returns the workers. After a death or an error, starts them again if there is a state to go on from."""
        if self._replicas is None:
            raise WorkerError.ended(f"{action}()", "were ended by shutdown()")
        if self._replicas.are_ended:
            self._checkpoints.settle_or_lose()
            if not self._checkpoints.lead_to(self._mark):
                raise WorkerError.ended(
                    f"{action}()",
                    "have ended with an error, and there is no state to go on from. restore() a file of save(), or "
                    "make a new trainer; train(max_retries=1) keeps states",
                )
            self._start_again(self._replicas)
        return self._replicas

    def _start_again(self, replicas: Replicas) -> None:
        """Starts the workers again with the last state that is stored, and repeats the passes since then."""
        self._checkpoints.settle_or_lose()
        progress = replicas.start_from(self._checkpoints.read()).progress
        while progress.num_calls < self._progress.num_calls:
            logger.warning("pass %d is repeated, whose state was not stored", progress.num_calls + 1)
            progress = replicas.call(Runner.train_pass, *self._last_pass)[0].progress

    def _close(self, error: BaseException | None) -> None:
        replicas, self._replicas = self._replicas, None
        try:
            if replicas is not None:
                self._checkpoints.settle_or_lose()
        except BaseException as failure:
            error = error or failure
            raise
        finally:
            try:
                if replicas is not None:
                    replicas.close(is_forced=error is not None)
            finally:
                trial, self._trial = self._trial, None
                if trial is not None:
                    trial.end(error)


def _read_state_file(path: str | os.PathLike[str]) -> bytes:
    """Reads a file of `save()`. Raises `ValueError` if it is not one, or is incomplete."""
    state = Path(path).read_bytes()
    # torch.save() writes an archive, whose directory is at its end.
    if not zipfile.is_zipfile(io.BytesIO(state)):
        raise ValueError(f"{os.fspath(path)} is no file of save(), or a part of one is missing")
    return state


def _check_workers(num_replicas: int, batch_size: int, engine: object) -> None:
    if num_replicas < 1:
        raise ValueError(f"num_replicas is {num_replicas}; there must be at least 1")
    if batch_size < num_replicas:
        raise ValueError(
            f"batch_size is {batch_size}, and counts the samples of all {num_replicas} replicas together: give at "
            "least one for each"
        )
    if not isinstance(engine, Engine) and engine not in ("local", "ray", None):
        raise ValueError(f"engine is {engine!r}; it must be 'local', 'ray' or None")


def _warn_of_apex(arguments: Mapping[str, Any]) -> None:
    logger.warning(
        "torch.amp has taken the place of Apex: with use_fp16=True models compute under autocast, as with opt_level "
        "O1, and losses are scaled as needed. These apex_args change nothing: %s",
        ", ".join(arguments),
    )
