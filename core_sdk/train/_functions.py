"""The functions that a training function calls."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from core_sdk._ground.environment import known_grace_s
from core_sdk.core import Context
from core_sdk.train._checkpoint import Checkpoint, ReportedCheckpoint
from core_sdk.train._worker.session import Session

if TYPE_CHECKING:
    from core_sdk.train._worker.shards import DatasetShard


class CheckpointUploadMode(Enum):
    """The mode in which `report()` stores a checkpoint."""

    SYNC = "SYNC"
    """The checkpoint is stored before `report()` returns."""
    ASYNC = "ASYNC"
    """The checkpoint is copied, and then stored in the background."""


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
) -> None:
    """Records metrics, and stores a checkpoint with them. All ranks must call it, equally often.

    The metrics of rank 0 are recorded: numbers and media, and in the group "values" also texts, lists, dicts and None,
    of which only numbers have curves. Without a checkpoint no rank waits for another. Either rank 0 alone gives a
    checkpoint, or each rank gives one: then all files are stored together, and of files with the same name the one of
    the lowest rank. When `report()` returns, the directory may be removed, and the checkpoint is complete and recorded
    unless the mode is ASYNC. Each call counts as one step of the trial.

    If the training should stop, a report ends the function, unless that calls `should_preempt()` itself: the next
    report with a checkpoint, or one without where no checkpoint is to be expected. That is so if the searcher has
    stopped the trial, if it has no checkpoint, and if more reports have come without one than lay between the last two.

    Raises `InvalidMetricError`, `ValueError` for a directory that does not exist or if the ranks report differently,
    or the errors of storages.
    """
    mode = CheckpointUploadMode(checkpoint_upload_mode)
    is_async = mode is CheckpointUploadMode.ASYNC
    delete = is_async if delete_local_checkpoint_after_upload is None else delete_local_checkpoint_after_upload
    Session.current("report()").report(metrics, checkpoint, checkpoint_dir_name, wait=not is_async, delete=delete)


def get_checkpoint() -> Checkpoint | None:
    """Returns the newest reported checkpoint; before the first report, the one to resume from, or None."""
    return Session.current("get_checkpoint()").latest_checkpoint()


def get_all_reported_checkpoints() -> list[ReportedCheckpoint]:
    """Returns all existing checkpoints of the trial, the oldest one first. Waits for uploads in the background."""
    return Session.current("get_all_reported_checkpoints()").all_checkpoints()


def should_preempt() -> bool:
    """Returns whether the function should report a checkpoint and end. All ranks must call it, equally often.

    After the first call, `report()` no longer ends the function.
    """
    session = Session.current("should_preempt()")
    session.ends_in_report = False
    return session.context.preempt.should_preempt()


@dataclass(frozen=True)
class PreemptionInfo:
    """A request that the training stop soon."""

    deadline_ms: int | None
    """The time by which it must stop, in milliseconds since the Unix epoch; None if unknown."""
    preempted_node_to_ranks: dict[str, list[int]]
    """The ranks of each host that is given up. Here these are all hosts."""


def get_preemption_info() -> PreemptionInfo | None:
    """Returns the request that the training stop, or None. All ranks must call it, equally often.

    `report()` ends the function soon, unless it calls `should_preempt()` itself.
    """
    session = Session.current("get_preemption_info()")
    if not session.is_stop_wanted():
        return None
    hosts = session.context.distributed.hosts
    ranks = {host: [rank for rank, each in enumerate(hosts) if each == host] for host in hosts}
    grace_s = known_grace_s()
    return PreemptionInfo(None if grace_s is None else int((time.time() + grace_s) * 1000), ranks)


def get_dataset_shard(dataset_name: str | None = None) -> DatasetShard:
    """Returns this worker's part of a dataset that the trainer was given; without a name, of "train".

    Each call returns the same object. Raises `KeyError` for a name that the trainer was not given.
    """
    return Session.current("get_dataset_shard()").shard(dataset_name or "train")


def get_context() -> TrainContext:
    """Returns the context of this worker, which has its rank and the number of workers."""
    return TrainContext(Session.current("get_context()"))


class TrainContext:
    """The ranks of this worker, and the Core API's Context in which it trains."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._distributed = session.context.distributed

    @property
    def core_context(self) -> Context:
        """The Context of `core_sdk.core.init()`. All of the Core API works with it."""
        return self._session.context

    def get_world_size(self) -> int:
        return self._distributed.size

    def get_world_rank(self) -> int:
        return self._distributed.rank

    def get_local_rank(self) -> int:
        return self._distributed.local_rank

    def get_local_world_size(self) -> int:
        """Returns the number of workers on this node."""
        return self._distributed.local_size

    def get_node_rank(self) -> int:
        return self._distributed.cross_rank

    def get_experiment_name(self) -> str:
        """Returns the name of the experiment of this training's trial."""
        return self._session.experiment_name

    def get_trial_name(self) -> str:
        """Returns the name of this training's trial."""
        return self._session.trial_name

    def get_trial_id(self) -> str:
        """Returns the id of this training's trial, by which `core-sdk trial` and `core_sdk.client` find it."""
        return str(self._session.context.info.trial.trial_id)

    def get_trial_dir(self) -> str:
        """Returns the trial's folder in the home. Other nodes than the program's may not have it."""
        return str(self._session.trial_path)
