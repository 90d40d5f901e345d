"""The training that a worker executes. The functions of `core_sdk.train` work on it."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from core_sdk._ground.records import STOPPED_BY_SEARCHER
from core_sdk._home import Home
from core_sdk._home.attempts.continuation import find_checkpoint
from core_sdk._home.history import read_history
from core_sdk._runtime.retention import to_delete
from core_sdk.core import Context
from core_sdk.errors import ExperimentNotFoundError
from core_sdk.train._checkpoint import Checkpoint, ReportedCheckpoint
from core_sdk.train._program import Program
from core_sdk.train._values import VALUES, is_value, plain_metrics
from core_sdk.train._worker.callbacks import tell_callbacks
from core_sdk.train._worker.meeting import CheckpointMeeting
from core_sdk.train._worker.saving import checked_directory, store

if TYPE_CHECKING:
    from core_sdk.train._worker.shards import DatasetShard


logger = logging.getLogger("core_sdk.train")

GROWTH = "room for more workers"
"""The source of a stop after which the training goes on at once, with more workers."""


class Stopped(BaseException):
    """Leaves the training function in a report, because the training was asked to stop."""


class Session:
    """An execution of the training function by one rank."""

    _current: ClassVar[Session | None] = None
    """The one that this process executes, so that the functions of `core_sdk.train` can find it."""

    def __init__(self, context: Context, program: Program) -> None:
        self.context = context
        self.program = program
        info = context.info
        self._folder = Home(program.home).folder(info.trial.trial_id)
        self._train = context.train
        self._channel = context.distributed.channel
        self._is_chief = context.distributed.is_chief
        self._meeting = CheckpointMeeting(self._channel)
        self._steps = info.trial.steps_completed
        self._saved_at = self._steps
        """The step of the newest checkpoint."""
        self._interval = self._last_interval() if self._is_chief and self._steps else 0
        """The number of reports between the last two checkpoints (chief only)."""
        searcher = info.trial.config.get("searcher") or {}
        self._searched_metric: str | None = searcher.get("metric")
        # Other nodes may not see the home.
        self.experiment_name, self.trial_name, self._latest = self._channel.broadcast_outcome(self._look_up)
        self.trial_path = self._folder.path
        self._shards: dict[str, DatasetShard] = {}
        self.ends_in_report = True
        """Whether `report()` ends the function when it should stop, since the function does not check that itself."""
        self._has_told_of_stop = False

    @classmethod
    def current(cls, call: str) -> Session:
        """Returns the training of this process. Raises `RuntimeError` outside of a training function."""
        if cls._current is None:
            raise RuntimeError(f"{call} works only in a function that a TorchTrainer executes")
        return cls._current

    @contextlib.contextmanager
    def as_current(self) -> Iterator[None]:
        """Makes this the training of this process for the length of the block."""
        if Session._current is not None:
            raise RuntimeError("this process executes a training function already")
        Session._current = self
        try:
            yield
        finally:
            Session._current = None

    def report(
        self, metrics: dict[str, Any], checkpoint: Checkpoint | None, name: str | None, *, wait: bool, delete: bool
    ) -> None:
        if not isinstance(metrics, dict):
            raise TypeError(f"report() takes a dict of metrics, not {type(metrics).__name__}")
        self._steps += 1
        if self._is_chief:
            values = {name: value for name, value in metrics.items() if is_value(value)}
            numbers = {name: value for name, value in metrics.items() if name not in values}
            group = "validation" if self._searched_metric in numbers else "training"
            self._train.report_metrics(group, self._steps, numbers)
            if values:
                self._train.report_metrics(VALUES, self._steps, values)
        is_stopping = self.ends_in_report and self.is_stop_wanted()
        brings = checkpoint is not None
        is_stored, is_over = brings, False
        if is_stopping:
            is_stored, is_over = self._channel.broadcast_outcome(lambda: (brings, brings or self._ends_without()))
        is_shared = self._meeting.arrive(brings=brings)
        if checkpoint is not None:
            self._save(checkpoint, metrics, name, is_shared=is_shared, wait=wait, delete=delete)
        if self.program.has_callbacks:
            storage_id = self._latest.storage_id if is_stored and self._latest is not None else None
            tell_callbacks(self._folder, self.context, metrics, storage_id)
        if is_over:
            # No rank leaves before the checkpoint is stored.
            self._channel.allgather_outcome(self.context.checkpoint.wait, is_patient=True)
            if self._is_chief and not is_stored:
                self._warn_of_loss()
            self.context.preempt.acknowledge_preemption_signal()
            raise Stopped

    def _last_interval(self) -> int:
        """Returns the number of reports between the last two checkpoints of earlier attempts."""
        checkpoints = [each for each in read_history(self._folder).checkpoints if not each.is_superseded]
        steps = [0, *(each.record.steps_completed for each in checkpoints)][-2:]
        return max(0, steps[-1] - steps[0])

    def _ends_without(self) -> bool:
        """Returns whether this report ends the function, which should stop, without a checkpoint. Only rank 0 calls it.

        It does unless a checkpoint is to be expected, from which a resume would go on.
        """
        source = self.context.preempt.stop_source
        num_left = self._interval - (self._steps - self._saved_at)
        if source == STOPPED_BY_SEARCHER:
            return True
        if source == GROWTH:
            return False
        if num_left > 0 and not self._has_told_of_stop:
            self._has_told_of_stop = True
            logger.warning(
                "asked to stop (%s): the function ends in its next report with a checkpoint, or after %d without",
                source, num_left,
            )  # fmt: skip
        return num_left <= 0

    def _warn_of_loss(self) -> None:
        source = self.context.preempt.stop_source
        if source == STOPPED_BY_SEARCHER:
            return  # the trial is not to be resumed
        own = [each for each in read_history(self._folder).checkpoints if not each.is_superseded]
        newest = own[-1].record.steps_completed if own else self.context.info.trial.steps_completed
        logger.warning(
            "stopped (%s) in a report without a checkpoint: a resume %s, and what was trained since is lost. Give "
            "report() a checkpoint=; train.should_preempt() says when the function is to stop",
            source, f"goes on from step {newest}" if newest else "begins from nothing",
        )  # fmt: skip

    def is_stop_wanted(self) -> bool:
        return self.context.preempt.should_preempt(auto_ack=False)

    def latest_checkpoint(self) -> Checkpoint | None:
        """Returns the newest reported checkpoint; before the first report, the one from which the training goes on.

        Raises `CheckpointError` if only parts of that one are wanted, and the function has not asked for them.
        """
        found = self._latest
        if not self._is_chief and self._folder.path.exists() and (stored := self.all_checkpoints()):
            found = stored[-1].checkpoint  # rank 0 may have stored it alone
        if found is not None and found.storage_id is not None:
            self.context.checkpoint.check_whole(found.storage_id)
        return found

    def all_checkpoints(self) -> list[ReportedCheckpoint]:
        self.context.checkpoint.wait()
        return [
            ReportedCheckpoint.of(each.record)
            for each in read_history(self._folder).checkpoints
            if not each.is_superseded
        ]

    def shard(self, name: str) -> DatasetShard:
        """Returns this worker's part of a dataset. Raises `KeyError` if there is no such dataset."""
        training = self.program.training
        if name not in training.datasets:
            known = ", ".join(training.datasets) or "none"
            raise KeyError(f"the trainer was given no dataset {name!r}; datasets are: {known}")
        if name not in self._shards:
            from core_sdk._runtime.devices import devices  # these load torch
            from core_sdk.train._worker.shards import DatasetShard

            distributed = self.context.distributed
            device = devices(distributed.local_rank, training.num_gpus)[0]
            dividing = distributed if training.data.is_split(name) else None
            self._shards[name] = DatasetShard(training.datasets[name], dividing, device)
        return self._shards[name]

    def end(self) -> None:
        self._meeting.leave()

    def _save(
        self,
        checkpoint: Checkpoint,
        metrics: dict[str, Any],
        name: str | None,
        *,
        is_shared: bool,
        wait: bool,
        delete: bool,
    ) -> None:
        metadata = {}
        self._interval, self._saved_at = self._steps - self._saved_at, self._steps
        if self._is_chief:
            metadata = {"steps_completed": self._steps, "metrics": plain_metrics(metrics)}
            if name is not None:
                metadata["checkpoint_dir_name"] = name
        directory = checked_directory(checkpoint.path)
        storage_id = store(self.context, directory, metadata, is_shared=is_shared, wait=wait)
        self._latest = Checkpoint.stored(self.context.checkpoint.storage_url, storage_id)
        if delete:
            shutil.rmtree(directory, ignore_errors=True)
        config = self.program.training.run.checkpoint_config
        if self._is_chief and config.num_to_keep is not None:
            self.context.checkpoint.wait()
            for each in to_delete(read_history(self._folder).checkpoints, config):
                self.context.checkpoint.release(each)

    def _look_up(self) -> tuple[str, str, Checkpoint | None]:
        """Returns the names of the experiment and the trial, and the checkpoint to go on from. Only rank 0 calls it."""
        home, info = Home(self.program.home), self.context.info
        try:
            name = home.experiment(info.trial.experiment_id).read().name
        except ExperimentNotFoundError:
            name = self.program.training.run.name or ""
        trial_name = self._folder.read_record().name
        if info.latest_checkpoint is None:
            return name, trial_name, None
        found = find_checkpoint(home, self._folder, info.latest_checkpoint)
        return name, trial_name, None if found is None else Checkpoint.stored(found.storage, found.storage_id)
