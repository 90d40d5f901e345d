"""The trainer that a program uses."""

from __future__ import annotations

import io
import logging
import os
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, ParamSpec, Self, TypeVar
from weakref import WeakSet

import torch

from core_sdk import core
from core_sdk.environment import get_cluster_info
from core_sdk.errors import (
    ContextInUseError,
    ReplicaDiedError,
    StateMismatchError,
    WorkerDiedError,
    WorkerFailedError,
    WorkersEndedError,
)
from core_sdk.files import write_atomically
from core_sdk.loop.keeping import Keep, kept_parts
from core_sdk.records import with_given
from core_sdk.runtime.backends import usual_backend
from core_sdk.sgd import _runner
from core_sdk.sgd._creators import Creators, Function, SchedulerStep, as_given, as_list
from core_sdk.sgd._metrics import Metrics, flat, mean
from core_sdk.sgd._replicas import Replicas
from core_sdk.sgd._trial import TrainerTrial
from core_sdk.workers import Engine, open_engine

logger = logging.getLogger("core_sdk.sgd")

P = ParamSpec("P")
T = TypeVar("T")

_STATE_FILE = "state.pt"


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
        model_creator: Function,
        data_creator: Function,
        optimizer_creator: Function,
        loss_creator: Function,
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
        engine: Literal["local", "ray"] | Engine | None = None,
        name: str | None = None,
        job_id: str | None = None,
        seed: int | None = None,
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

        `batch_size` counts the samples of one batch on all workers together; each worker takes its part of it.
        `dataloader_config` has further options of torch's `DataLoader`; the training data are shuffled unless it says
        `shuffle=False`. `scheduler_step_freq` says when the built-in pass steps schedulers: after each "batch", each
        "epoch", or never.

        `use_fp16` computes in mixed precision by `torch.amp`. `backend` is that of torch.distributed. Hyperparameters
        with which the trial was started, by a search for example, replace those in `config`. The workers are processes
        of this machine, or those of a Ray cluster: by default if `ray.init()` has been called.

        The trial is in the experiment `name`; by default that is the name of the script. Each start of a program with
        the same `job_id` continues the same trial. The initial weights, the order of the data and all random numbers
        follow from the trial's seed, which is `seed` for a new trial, or else a random one. With a `context`, the
        trainer belongs to the trial of that Context, which can have only one trainer, and has a seed already.

        A trial that is resumed goes on from its newest checkpoint. `keep` says what it takes from there: "all";
        "model", the weights alone; or a set of "models", "optimizers", "lr_schedulers" and "training", which is the
        number of passes, the place in the data and the random numbers. The rest begins anew. The default is "all"; from
        the checkpoint of another trial it is "model".

        Raises `ValueError` for options that exclude each other, `ContextInUseError`, `WorkersNotStartedError`,
        `NotPicklableError`, or `WorkerFailedError` with the error of a creator.
        """
        _check_functions(
            model_creator=model_creator,
            data_creator=data_creator,
            optimizer_creator=optimizer_creator,
            loss_creator=loss_creator,
            scheduler_creator=scheduler_creator,
            train_function=train_function,
            validation_function=validation_function or None,
            initialization_hook=initialization_hook,
        )
        _check_options(num_replicas, batch_size, dataloader_config or {}, engine, scheduler_step_freq)
        if keep is not None:
            kept_parts(keep, _runner.PARTS, models=["models"])
        if apex_args:
            _warn_of_apex(apex_args)
        if context is not None and seed is not None:
            raise ValueError("seed and context were given: pass the seed to the core.init() that makes the Context")
        self._trial: TrainerTrial | None = None
        if context is None:
            self._trial = TrainerTrial(config or {}, name=name, job_id=job_id, seed=seed, num_slots=num_replicas)
            context = self._trial.context
            hparams = self._trial.given_hparams
        else:
            if context in self._contexts_in_use:
                raise ContextInUseError(context.info.trial.trial_id)
            hparams = {} if (info := get_cluster_info()) is None else info.trial.hparams
        self.context = context
        self.config = with_given(dict(config or {}), hparams)
        try:
            self._creators = Creators(
                model_creator=model_creator,
                data_creator=data_creator,
                optimizer_creator=optimizer_creator,
                loss_creator=loss_creator,
                scheduler_creator=scheduler_creator,
                train_function=train_function,
                validation_function=validation_function,
                initialization_hook=initialization_hook,
                config=self.config,
                dataloader_config=dict(dataloader_config or {}),
                batch_size=batch_size,
                use_gpu=use_gpu,
                use_fp16=use_fp16,
                scheduler_step_freq=scheduler_step_freq,
                seed=self.context.info.trial.trial_seed,
                trial_id=self.context.info.trial.trial_id,
            )
            opened = open_engine(
                engine,
                num_replicas,
                num_gpus=1 if use_gpu else 0,
                imported_modules=["cloudpickle", "torch.distributed", _runner.__name__],
            )
            if self._trial is not None:
                opened.log_to(self._trial.log_path)
            self._replicas: Replicas | None = Replicas(
                opened,
                num_replicas,
                self._creators,
                usual_backend(use_gpu) if backend == "auto" else backend,
            )
            self._progress = _runner.Progress(0, 0)
            self._steps = 0
            """The number of batches of the trial. It also grows after `restore()` has gone back."""
            self._validated_at: int | None = None
            self._good_checkpoint: str | None = None
            """The checkpoint with the state to go on from after a death."""
            self._is_current = False
            """Whether the workers still have the state of that checkpoint."""
            self._replaced_checkpoint: str | None = None
            """The checkpoint that the next good one replaces."""
            self._resume(keep)
        except BaseException as error:
            self._close(error, is_forced=True)
            raise
        self._contexts_in_use.add(context)

    @property
    def epoch(self) -> int:
        """The number of complete passes over the data in all attempts of the trial."""
        return self._progress.epoch

    @property
    def num_workers(self) -> int:
        """The number of running workers. It is less than `num_replicas` if there was no room for all of them."""
        return 0 if self._replicas is None or self._replicas.are_ended else self._replicas.size

    def train(self, max_retries: int = 0, checkpoint: str | os.PathLike[str] | None = "auto") -> Metrics:
        """Trains one pass over the data, and returns its metrics: means over the samples of all workers.

        If a worker dies, the others are ended. As many as there is room for, at most `num_replicas`, then repeat the
        pass from the last good state, so that no sample counts twice. This happens up to `max_retries` times. If there
        is no room for any worker, the trainer waits for at most 17 minutes. A later call starts the missing workers as
        soon as there is room.

        With `max_retries` and "auto", the states before and after the pass are kept in checkpoints of the trial.
        `checkpoint` may also be a file of `save()` from which the pass is repeated. An error of the train function is
        not retried. It ends the workers, and the next call starts them again with the last state that was kept.

        Raises `WorkerFailedError`, `ReplicaDiedError` after the last retry, or `WorkersNotStartedError`.
        """
        if max_retries < 0:
            raise ValueError(f"max_retries is {max_retries}; it must be at least 0")
        if max_retries and not checkpoint:
            raise ValueError(
                "max_retries need a state to begin again from: pass checkpoint='auto', or a file of save()"
            )
        replicas = self._running("train")
        keeps_states = max_retries > 0 and checkpoint == "auto"
        read_last_good: Callable[[], bytes]
        if keeps_states:
            read_last_good = partial(self._read_checkpoint, self._kept_state())
        else:
            read_last_good = partial(_read_state_file, checkpoint or "")
            if max_retries:
                read_last_good()  # a file that cannot be read must fail now rather than after a death
        trained, state = self._trained(replicas, max_retries, read_last_good, keeps_states)
        self._steps += max(1, trained[0].num_batches)  # a train function may use its own data
        self._progress = trained[0].progress
        self._is_current = False
        metrics = self._report_training(trained)
        # The state is kept after the report, which a resume from this checkpoint must find.
        if state is not None:
            self._keep(state)
        return metrics

    def _trained(
        self, replicas: Replicas, max_retries: int, read_last_good: Callable[[], bytes], keeps_states: bool
    ) -> tuple[list[_runner.TrainedPass], bytes | None]:
        """Trains a pass, with retries. Returns its results, and the state after it if that is to be kept."""
        for num_failed in range(max_retries + 1):
            try:
                if num_failed:
                    replicas.restart(read_last_good())
                elif replicas.can_grow():
                    replicas.restart(replicas.read_state())
                return replicas.run(_runner.train_pass), replicas.read_state() if keeps_states else None
            except WorkerDiedError as error:
                logger.warning("pass %d has failed: worker %d %s", self.epoch + 1, error.rank, error.cause)
                death = error
            except BaseException:
                replicas.end()
                raise
        raise self._death("train()", death, max_retries + 1) from death

    def validate(self) -> Metrics:
        """Validates on all workers, each on its part of the data, and returns means over all samples.

        If nothing was trained since the last validation, the trial does not record it again.
        """
        if self._creators.validation_function is False:
            return {}
        metrics = mean(self._run("validate", _runner.validate), "validation_function()")
        if self._validated_at != self._steps:
            self.context.train.report_validation_metrics(self._steps, {**flat(metrics), "epoch": self.epoch})
            self._validated_at = self._steps
        return metrics

    def update_scheduler(self, metric: float) -> None:
        """Calls `scheduler.step(metric)` on all workers, as `ReduceLROnPlateau` needs it."""
        self._change("update_scheduler", _runner.step_schedulers, metric)

    def apply_all_workers(self, fn: Callable[[_runner.Runner], T]) -> list[T]:
        """Calls `fn(runner)` on each worker, and returns the results in the order of the ranks.

        The runner has `models`, `optimizers`, `schedulers`, `criterion`, `config`, `train_loader`,
        `validation_loader`, `device`, `epoch`, `rank` and `world_size`.
        """
        return self._change("apply_all_workers", _runner.call, fn)

    def get_model(self) -> Any:
        """Returns the trained model on the CPU of this process, or a list if the creator makes several models."""
        content = torch.load(io.BytesIO(self._read_state("get_model")), map_location="cpu", weights_only=True)
        models = as_list(self._creators.model_creator(self.config))
        for index, model in enumerate(models):
            model.load_state_dict(content["objects"][f"model_{index}"])
        return as_given(models)

    def save(self, checkpoint: str | os.PathLike[str] | None = None) -> str:
        """Saves the complete state of the training in this file, or by default as a checkpoint of the trial.

        Returns the path, or the storage id of the checkpoint. Either is written completely or not at all, and holds the
        models, optimizers and schedulers in the format of `torch.save()`.
        """
        if checkpoint is not None:
            write_atomically(Path(checkpoint), self._read_state("save"))
            return os.fspath(checkpoint)
        storage_id = self._kept_state()
        self._replaced_checkpoint = None  # the next state replaces no checkpoint
        return storage_id

    def restore(self, checkpoint: str | os.PathLike[str], *, keep: Keep = "all") -> None:
        """Continues from a file of `save()`, which may come from another number of workers.

        `keep` says what is taken from the file, in the words of `PyTorchTrainer(keep=…)`. The rest stays as it is; it
        begins anew if the workers have ended. The file is read by `torch.load(weights_only=True)`.

        Raises `StateMismatchError` if it holds other models, and `ValueError` if it is not a file of `save()`.
        """
        kept_parts(keep, _runner.PARTS, models=["models"])
        state = _read_state_file(checkpoint)
        try:
            if self._replicas is not None and self._replicas.are_ended:
                self._replicas.restart(state, keep)
            self._is_current = False
            self._go_on_from(state, keep)
        except WorkerFailedError as error:
            if isinstance(error.__cause__, StateMismatchError):
                raise error.__cause__ from None
            raise

    load = restore

    def shutdown(self, force: bool = False) -> None:
        """Ends the workers, with `force` at once, and the trial unless a Context was given. May be called again."""
        self._close(None, is_forced=force)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error, is_forced=error is not None)

    def _resume(self, keep: Keep | None) -> None:
        """Continues from the checkpoint with which this attempt of the trial begins."""
        info = self.context.info
        if info.latest_checkpoint is None:
            return
        with self.context.checkpoint.restore_path(info.latest_checkpoint) as directory:
            if not (directory / _STATE_FILE).exists():
                return
            is_own = self._go_on_from((directory / _STATE_FILE).read_bytes(), keep)
        if is_own:
            metadata = self.context.checkpoint.get_metadata(info.latest_checkpoint)
            self._steps = max(self._steps, metadata["steps_completed"])

    def _go_on_from(self, state: bytes, keep: Keep | None) -> bool:
        """Loads a state into all workers, and returns whether it is one of the trial's own."""
        restored = self._run("restore", _runner.read_state, state, keep)[0]
        self._progress = restored.progress
        self._steps = max(self._steps, self._progress.batches)
        return restored.is_own

    def _kept_state(self) -> str:
        """Returns the checkpoint with the state of the workers, which is stored if there is none yet."""
        return (self._is_current and self._good_checkpoint) or self._keep(self._read_state("save"))

    def _keep(self, state: bytes) -> str:
        """Stores the state in a checkpoint, and returns its storage id.

        It replaces the checkpoint before it, unless the trial has a configuration, which then says what is kept.
        """
        metadata = {"steps_completed": self._steps, "epoch": self.epoch}
        with self.context.checkpoint.store_path(metadata) as (directory, storage_id):
            (directory / _STATE_FILE).write_bytes(state)
        replaced, self._good_checkpoint, self._is_current = self._replaced_checkpoint, storage_id, True
        if replaced is not None and not self.context.info.trial.config:
            self.context.checkpoint.release(replaced)
        self._replaced_checkpoint = storage_id
        return storage_id

    def _read_checkpoint(self, storage_id: str) -> bytes:
        with self.context.checkpoint.restore_path(storage_id) as directory:
            return (directory / _STATE_FILE).read_bytes()

    def _change(self, action: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Makes a call after which the state of the workers differs from the one that is kept."""
        self._running(action)
        self._is_current = False
        return self._run(action, function, *args, **kwargs)

    def _run(self, action: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        try:
            return self._running(action).run(function, *args, **kwargs)
        except WorkerDiedError as error:
            raise self._death(f"{action}()", error) from error

    def _read_state(self, action: str) -> bytes:
        try:
            return self._running(action).read_state()
        except WorkerDiedError as error:
            raise self._death(f"{action}()", error) from error

    def _death(self, call: str, error: WorkerDiedError, num_tries: int = 1) -> ReplicaDiedError:
        return ReplicaDiedError(call, num_tries, error, can_go_on=self._is_current)

    def _report_training(self, trained: list[_runner.TrainedPass]) -> Metrics:
        measured = [each.measured for each in trained]
        times = {name: max(each.times[name] for each in trained) for name in trained[0].times}
        metrics = {
            **mean(measured, "train_function()"),
            "epoch": self.epoch,
            "batch_processed": sum(each.num_samples for each in measured),
            **times,
        }
        self.context.train.report_training_metrics(self._steps, flat(metrics))
        return metrics

    def _running(self, action: str) -> Replicas:
        """Returns the workers. After a death or an error, starts them again if there is a state to go on from."""
        if self._replicas is None:
            raise WorkersEndedError(f"{action}()", "were ended by shutdown()")
        if self._replicas.are_ended:
            if not self._is_current or self._good_checkpoint is None:
                raise WorkersEndedError(
                    f"{action}()",
                    "have ended with an error, and there is no state to go on from. restore() a file of save(), or "
                    "make a new trainer; train(max_retries=1) keeps states",
                )
            self._replicas.restart(self._read_checkpoint(self._good_checkpoint))
        return self._replicas

    def _close(self, error: BaseException | None, *, is_forced: bool) -> None:
        replicas, self._replicas = getattr(self, "_replicas", None), None
        try:
            if replicas is not None:
                replicas.close(is_forced=is_forced)
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


def _check_functions(**functions: Any) -> None:
    for name, function in functions.items():
        is_optional = name not in ("model_creator", "data_creator", "optimizer_creator", "loss_creator")
        if not callable(function) and not (function is None and is_optional):
            raise TypeError(f"{name} is a {type(function).__name__}; it must be a function")
        if name == "loss_creator" and isinstance(function, torch.nn.Module):
            raise TypeError("loss_creator is a loss; give its class, or a function of config that returns one")


def _check_options(
    num_replicas: int, batch_size: int, loader_options: Mapping[str, Any], engine: object, scheduler_step_freq: object
) -> None:
    if num_replicas < 1:
        raise ValueError(f"num_replicas is {num_replicas}; there must be at least 1")
    if batch_size < num_replicas:
        raise ValueError(
            f"batch_size is {batch_size}, and counts the samples of all {num_replicas} replicas together: give at "
            "least one for each"
        )
    if refused := sorted({"dataset", "batch_size", "batch_sampler"} & loader_options.keys()):
        raise ValueError(
            f"dataloader_config has {', '.join(refused)}: the trainer makes the batches. Pass its own batch_size=, "
            "and return the datasets from data_creator()"
        )
    if not isinstance(engine, Engine) and engine not in ("local", "ray", None):
        raise ValueError(f"engine is {engine!r}; it must be 'local', 'ray' or None")
    if scheduler_step_freq not in ("batch", "epoch", None):
        raise ValueError(f"scheduler_step_freq is {scheduler_step_freq!r}; it must be 'batch', 'epoch' or None")


def _warn_of_apex(arguments: Mapping[str, Any]) -> None:
    logger.warning(
        "torch.amp has taken the place of Apex: with use_fp16=True models compute under autocast, as with opt_level "
        "O1, and losses are scaled as needed. These apex_args change nothing: %s",
        ", ".join(arguments),
    )
