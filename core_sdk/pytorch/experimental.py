"""Batch inference: the ranks process a dataset once. After a stop or a death, stored work is not repeated."""

from __future__ import annotations

import abc
import contextlib
import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

from core_sdk import client
from core_sdk._runtime.ranks import joined_ranks
from core_sdk._runtime.strategies import UntouchedStrategy
from core_sdk._runtime.torch_runtime import TorchRuntime
from core_sdk.core import Context, DistributedContext
from core_sdk.pytorch._context import TrialContext
from core_sdk.pytorch._init import begun_attempt
from core_sdk.pytorch._run import TrialRun
from core_sdk.pytorch.samplers import DistributedBatchSampler

__all__ = ["TorchBatchProcessor", "TorchBatchProcessorContext", "torch_batch_process"]

_DEFAULT_BATCH_SIZE = 1
_NOTHING = object()


class TorchBatchProcessorContext(TrialContext):
    """The context of a processor: its device, hyperparameters, reducers, metrics, and a place for its output."""

    def __init__(self, run: TrialRun[Any], output: Path) -> None:
        super().__init__(run)
        self._output = output

    def prepare_model_for_inference(self, model: nn.Module) -> nn.Module:
        """Moves the model to this rank's device, puts it into evaluation mode, and returns it."""
        return model.to(self.device).eval()

    @contextlib.contextmanager
    def upload_path(self) -> Iterator[Path]:
        """Yields a directory whose files the next checkpoint keeps below `rank_<rank>/`.

        If the block raises, the files are dropped. A file replaces an earlier one of the same name that is not stored
        yet. Checkpoints with such files are pinned: no policy collects them.
        """
        with tempfile.TemporaryDirectory(dir=self._output.parent) as directory:
            yield Path(directory)
            _move_files(Path(directory), self._output)

    def report_metrics(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Reports metrics, as `core_context.train.report_metrics()` does. Only the chief may call it."""
        self._run.core.train.report_metrics(group, steps_completed, metrics)

    def report_task_using_checkpoint(self, checkpoint: client.Checkpoint) -> None:
        """Records that this trial uses the checkpoint, so that it is not collected meanwhile."""
        self._run.core.experimental.report_task_using_checkpoint(checkpoint)

    def report_task_using_model_version(self, model_version: client.ModelVersion) -> None:
        """Records that this trial uses the checkpoint of a model version, so that it is not collected meanwhile."""
        self._run.core.experimental.report_task_using_model_version(model_version)

    def get_distributed_rank(self) -> int:
        return self.distributed.rank

    def get_distributed_size(self) -> int:
        return self.distributed.size


class TorchBatchProcessor(abc.ABC):
    """The processing of each batch. It is made once on each rank, with the context."""

    def __init__(self, context: TorchBatchProcessorContext) -> None:
        self.context = context

    @abc.abstractmethod
    def process_batch(self, batch: Any, batch_idx: int) -> None:
        """Called for each batch of this rank, numbered from 0. The batch is on the device where the loader put it."""

    def on_checkpoint_start(self) -> None:  # noqa: B027 (need not be overridden)
        """Called on every rank before each checkpoint, which includes what it gives to `upload_path()`."""

    def on_finish(self) -> None:  # noqa: B027 (need not be overridden)
        """Called on every rank after the last checkpoint, unless the work was stopped."""


def torch_batch_process(
    batch_processor_cls: type[TorchBatchProcessor],
    dataset: Dataset[Any],
    batch_size: int | None = None,
    max_batches: int | None = None,
    checkpoint_interval: int = 5,
    dataloader_kwargs: Mapping[str, Any] | None = None,
    distributed_context: DistributedContext | None = None,
    **core_arguments: Any,
) -> None:
    """Gives each batch of the dataset, in its order, to a processor on one of the ranks. Collective.

    A checkpoint after every `checkpoint_interval` batches of a rank, and before a stop, records the progress, and any
    number of ranks can resume from it. `max_batches` limits the batches of each rank. `dataloader_kwargs` are those of
    torch's `DataLoader`; `core_arguments` are further arguments of `core.init()`, such as `name`, `job_id` and `seed`.
    The metrics of reducers are reported as validation metrics at the end of each attempt.

    Raises `TypeError` for a dataset without a length, and `ValueError` for options that would change the order.
    """
    if not isinstance(dataset, Sized):
        raise TypeError(f"a {type(dataset).__name__} has no length: the ranks cannot divide it")
    if checkpoint_interval < 1:
        raise ValueError(f"checkpoint_interval is {checkpoint_interval}; it must be at least 1")
    if max_batches is not None and max_batches < 1:
        raise ValueError(f"max_batches is {max_batches}; it must be at least 1, or None for all")
    options = _Options.of(batch_size, dataloader_kwargs or {})
    with (
        joined_ranks(distributed_context) as ranks,
        tempfile.TemporaryDirectory() as directory,
        begun_attempt(
            ranks,
            partial(TorchRuntime, ranks, strategy=UntouchedStrategy()),
            hparams=None,
            exp_conf=None,
            enable_tensorboard_logging=True,
            core_arguments=core_arguments,
        ) as run,
        contextlib.closing(TorchBatchProcessorContext(run, output := Path(directory, "output"))) as context,
    ):
        work = _Work(run, output, options, checkpoint_interval)
        work.run(batch_processor_cls(context), dataset, max_batches)


@dataclass(frozen=True)
class _Options:
    """The options by which a dataset is divided into batches, and loaded."""

    batch_size: int
    drop_last: bool
    loading: Mapping[str, Any]

    @classmethod
    def of(cls, batch_size: int | None, loading: Mapping[str, Any]) -> _Options:
        rest = dict(loading)
        if rest.pop("shuffle", False):
            raise ValueError("shuffle must be False: a resume goes on by the position in the dataset")
        for name in ("sampler", "batch_sampler"):
            if rest.pop(name, None) is not None:
                raise ValueError(
                    f"dataloader_kwargs has a {name}: the dataset is divided by its order; wrap it instead"
                )
        if batch_size is not None and "batch_size" in rest:
            raise ValueError("batch_size is given twice: as an argument and in dataloader_kwargs")
        size = rest.pop("batch_size", batch_size) or _DEFAULT_BATCH_SIZE
        return cls(size, bool(rest.pop("drop_last", False)), rest)

    def batches(self, num_samples: int, first: int = 0) -> BatchSampler:
        """Returns a sampler of the batches of all ranks, from number `first` on."""
        return BatchSampler(range(first * self.batch_size, num_samples), self.batch_size, self.drop_last)


class _Work:
    """The work of the ranks, and its progress. All ranks make the same number of steps, of one batch each or none."""

    def __init__(self, run: TrialRun[Any], output: Path, options: _Options, checkpoint_interval: int) -> None:
        self._run = run
        self._core: Context = run.core
        self._output = output
        self._options = options
        self._checkpoint_interval = checkpoint_interval
        latest, metadata = self._core.info.latest_checkpoint, dict[str, Any]()
        if latest is not None:
            self._core.checkpoint.check_whole(latest)
            metadata = self._core.checkpoint.get_metadata(latest)
        self._steps: int = metadata.get("steps_completed", 0)
        self._batches: int = metadata.get("batches_completed", 0)
        """The number of batches of all ranks, in this attempt and earlier ones."""
        self._num_batches: int

    def run(self, processor: TorchBatchProcessor, dataset: Any, max_batches: int | None) -> None:
        ranks, options = self._run.distributed, self._options
        self._num_batches = len(options.batches(len(dataset)))
        num_steps = max(0, math.ceil((self._num_batches - self._batches) / ranks.size))
        if max_batches is not None:
            num_steps = min(num_steps, max(0, max_batches - self._steps))
        sampler = DistributedBatchSampler(options.batches(len(dataset), self._batches), ranks.size, ranks.rank)
        batches = iter(DataLoader(dataset, batch_sampler=sampler, **options.loading))
        num_unsaved, is_stopped = 0, False
        for left in reversed(range(num_steps)):
            if is_stopped := self._core.preempt.should_preempt():
                break
            batch = next(batches, _NOTHING)
            if batch is not _NOTHING:
                processor.process_batch(batch=batch, batch_idx=self._steps)
            self._steps += 1
            self._batches += ranks.size
            num_unsaved += 1
            if left > 0 and num_unsaved == self._checkpoint_interval:
                self._save(processor)
                num_unsaved = 0
        if num_unsaved:
            self._save(processor)
        self._report()
        if not is_stopped:
            processor.on_finish()

    def _save(self, processor: TorchBatchProcessor) -> None:
        """Stores a checkpoint. Collective."""
        processor.on_checkpoint_start()
        ranks, output = self._run.distributed, self._output
        has_output = any(ranks.allgather(output.exists()))
        position = {"steps_completed": self._steps, "batches_completed": self._batches}
        with self._core.checkpoint.store_path(position if ranks.is_chief else None, shard=True) as (path, storage_id):
            _move_files(output, path / f"rank_{ranks.rank}")
            if ranks.is_chief:
                (path / "batch_completed.json").write_text(json.dumps({"batch_completed": self._steps}))
        if ranks.is_chief:
            if has_output:
                client.get_checkpoint(storage_id).pin("it has output of torch_batch_process()")
            self._core.train.report_progress(min(1.0, self._batches / self._num_batches))

    def _report(self) -> None:
        """Reports the metrics of the reducers. Collective."""
        metrics = self._run.reducers.reduce(False, self._run.distributed.allgather)
        if metrics and self._run.distributed.is_chief:
            self._core.train.report_validation_metrics(self._steps, metrics)


def _move_files(source: Path, target: Path) -> None:
    """Moves the files of a directory, if there are any. The directories may be on different file systems."""
    if not source.exists() or not any(source.iterdir()):
        return
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_move)
    shutil.rmtree(source, ignore_errors=True)


def _move(source: str, target: str) -> str:
    Path(target).unlink(missing_ok=True)
    return str(shutil.move(source, target))
