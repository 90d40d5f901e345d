"""The part of the context that informs a trial about its run: hyperparameters, ids, progress, stop requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from core_sdk.errors import MissingDependencyError
from core_sdk.pytorch._reducers import FunctionReducer, MetricReducer, WrappedReducer, reduce_across_slots
from core_sdk.pytorch._run import TrialRun

if TYPE_CHECKING:
    from core_sdk.core import Context, DistributedContext

logger = logging.getLogger("core_sdk.pytorch")

_Metric = TypeVar("_Metric", bound=MetricReducer)


class TrialContext:
    """The part that the contexts of all trials have in common."""

    def __init__(self, run: TrialRun[Any]) -> None:
        self._run = run
        self.distributed: DistributedContext = run.distributed
        self.device: torch.device = run.device
        self._tensorboard_writer: Any = None
        self._batch_sizes: tuple[int, int] | None = None

    @property
    def core_context(self) -> Context:
        """The Context of `core_sdk.core.init()`. Raises `RuntimeError` for a trial that is only loaded."""
        return self._run.core

    @property
    def profiler(self) -> Any:
        """The profiler of `set_profiler()`, or None."""
        return self._run.profiler

    def get_hparams(self) -> dict[str, Any]:
        """Returns the hyperparameters. Raises `ValueError` if neither `init()` nor the trial has any."""
        if self._run.hparams is None:
            raise ValueError("there are no hyperparameters: pass hparams to pytorch.init()")
        return self._run.hparams

    def get_hparam(self, name: str) -> Any:
        """Returns a hyperparameter. Raises `ValueError` for an unknown name."""
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(f"there is no hyperparameter {name!r}; there are: {', '.join(sorted(hparams)) or 'none'}")
        if name == "global_batch_size":
            logger.warning(
                "global_batch_size counts the samples of all ranks: for a data loader use "
                "context.get_per_slot_batch_size(), otherwise context.get_global_batch_size()"
            )
        return hparams[name]

    def get_global_batch_size(self) -> int:
        """Returns the number of samples of a batch on all ranks together.

        It is the hyperparameter `global_batch_size`, rounded down to a multiple of the number of ranks.
        """
        return self._sizes()[0]

    def get_per_slot_batch_size(self) -> int:
        """Returns the number of samples of a batch on each rank."""
        return self._sizes()[1]

    def _sizes(self) -> tuple[int, int]:
        if self._batch_sizes is None:
            self._batch_sizes = split_batch_size(self.get_hparams().get("global_batch_size"), self.distributed.size)
        return self._batch_sizes

    def get_experiment_config(self) -> dict[str, Any]:
        """Returns the experiment's configuration. Raises `ValueError` if neither `init()` nor the experiment has it."""
        if self._run.exp_conf is None:
            raise ValueError("there is no experiment configuration: pass exp_conf to pytorch.init()")
        return self._run.exp_conf

    def get_data_config(self) -> dict[str, Any]:
        """Returns the section `data` of the experiment's configuration."""
        data: dict[str, Any] = self.get_experiment_config().get("data") or {}
        return data

    def get_experiment_id(self) -> int:
        return self._run.core.info.trial.experiment_id

    def get_trial_id(self) -> int:
        return self._run.trial_id

    def get_trial_seed(self) -> int:
        """Returns the seed of all randomness in this trial, which is the same after a restart and on all ranks."""
        return self._run.seed

    def get_stop_requested(self) -> bool:
        return self._run.is_stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Asks the training to save a checkpoint and end after the current batch. One rank's request suffices."""
        if not isinstance(stop_requested, bool):
            raise TypeError(f"stop_requested is {stop_requested!r}; it must be True or False")
        self._run.is_stop_requested = stop_requested

    def get_initial_batch(self) -> int:
        """Returns the number of batches trained before this start of the script, which a custom sampler has to skip."""
        return self._run.position.initial_batch

    def current_train_batch(self) -> int:
        """Returns the index of the batch that is being trained or was trained last, counted over the whole training.

        Raises `RuntimeError` if none was trained, in this attempt or before.
        """
        if self._run.position.batch is None:
            raise RuntimeError("no batch has been trained yet: ask in train_batch(), or later")
        return self._run.position.batch

    def current_train_epoch(self) -> int:
        """Returns the index of the epoch to which the current batch belongs."""
        self.current_train_batch()
        return self._run.position.epoch

    def is_epoch_start(self) -> bool:
        """Returns whether the current batch is the first one of its epoch."""
        self.current_train_batch()
        return self._run.position.is_epoch_start

    def is_epoch_end(self) -> bool:
        """Returns whether the current batch is the last one of its epoch."""
        self.current_train_batch()
        return self._run.position.is_epoch_end

    def to_device(self, data: Any) -> Any:
        """Moves data that the trial has made itself; batches of the loaders are moved already.

        Dictionaries, lists and tuples are searched, and arrays become tensors.
        """
        return self._run.to_device(data)

    @overload
    def wrap_reducer(
        self, reducer: _Metric, name: str | None = None, for_training: bool = True, for_validation: bool = True
    ) -> _Metric: ...

    @overload
    def wrap_reducer(
        self,
        reducer: Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> FunctionReducer: ...

    def wrap_reducer(
        self,
        reducer: Callable[[list[Any]], Any] | MetricReducer,
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Registers a metric that is computed over all batches and ranks, for each report and for each validation.

        A function becomes a reducer with a method `update(value)`; it gets the list of all these values. With a `name`
        the reducer returns one value, without one a dictionary of metrics.
        """
        return self._run.reducers.add(reducer, name, for_training, for_validation)

    def reset_reducers(self) -> None:
        self._run.reducers.reset()

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """Returns the metrics of the reducers for training, or of those for validation. Collective."""
        return self._run.reducers.reduce(for_training, self.distributed.allgather)

    def run_cross_slot_reduction(
        self, reducables: Sequence[WrappedReducer], gathered: Sequence[Sequence[Any]]
    ) -> dict[str, Any]:
        """Returns the metrics of these reducers, computed from the contributions of each rank."""
        return reduce_across_slots(reducables, gathered)

    def get_tensorboard_path(self) -> Path:
        """Returns a directory for event files of your own, which `core-sdk trial tensorboard` shows."""
        return self._run.core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> Any:
        """Returns a `torch.utils.tensorboard.SummaryWriter` for that directory, closed at the end of the training.

        Raises `MissingDependencyError` without TensorBoard.
        """
        if self._tensorboard_writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter  # slow to import, and needs TensorBoard
            except ImportError as error:
                purpose = "context.get_tensorboard_writer()"
                raise MissingDependencyError("TensorBoard", "tensorboard", purpose) from error
            self._tensorboard_writer = SummaryWriter(str(self.get_tensorboard_path()))
        return self._tensorboard_writer

    def get_enable_tensorboard_logging(self) -> bool:
        return self._run.enables_tensorboard

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Sets what `get_enable_tensorboard_logging()` returns. Metrics are shown by TensorBoard in any case."""
        if not isinstance(enable_tensorboard_logging, bool):
            raise TypeError(f"enable_tensorboard_logging is {enable_tensorboard_logging!r}; it must be True or False")
        self._run.enables_tensorboard = enable_tensorboard_logging

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profiles the training with `torch.profiler.profile(*args, **kwargs)`, whose `step()` follows each batch.

        Traces are written to `get_tensorboard_path()`.
        """
        writer = torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path()))
        self._run.profiler = torch.profiler.profile(*args, **{**kwargs, "on_trace_ready": writer})

    def close(self) -> None:
        """Closes the TensorBoard writer. `init()` calls it at the end."""
        if self._tensorboard_writer is not None:
            self._tensorboard_writer.close()


def run_of(context: TrialContext) -> TrialRun[Any]:
    """Returns what the Trainer knows about the attempt of a context."""
    return context._run


def split_batch_size(global_batch_size: Any, num_ranks: int) -> tuple[int, int]:
    """Returns the batch size of all ranks, and of each rank. Warns if `global_batch_size` has to be rounded down.

    Raises `ValueError` if it is not an integer, or leaves a rank without a sample.
    """
    if not isinstance(global_batch_size, int) or isinstance(global_batch_size, bool):
        raise ValueError(
            f"the hyperparameter global_batch_size is {global_batch_size!r}; it must be a whole number: pass "
            'hparams={"global_batch_size": …} to pytorch.init(), or give data loaders a size of their own'
        )
    each = global_batch_size // num_ranks
    if each < 1:
        raise ValueError(
            f"the hyperparameter global_batch_size is {global_batch_size}; it must be at least {num_ranks}, the number "
            "of ranks"
        )
    if each * num_ranks != global_batch_size:
        logger.warning(
            "global_batch_size is %d, which is no multiple of the %d ranks: each takes %d samples, and a batch has %d",
            global_batch_size, num_ranks, each, each * num_ranks,
        )  # fmt: skip
    return each * num_ranks, each
