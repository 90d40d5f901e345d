"""What a training function calls."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from core_sdk.core import Context
from core_sdk.environment import known_grace_s
from core_sdk.train._checkpoint import Checkpoint, ReportedCheckpoint
from core_sdk.train.worker import current
from core_sdk.train.worker.session import Session

if TYPE_CHECKING:
    from core_sdk.train.worker.shards import DatasetShard


class CheckpointUploadMode(Enum):
    """When a checkpoint is stored."""

    SYNC = "SYNC"
    """Before `report()` returns."""
    ASYNC = "ASYNC"
    """In the background, after it was copied."""


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
) -> None:
    """Records metrics, and stores a checkpoint with them. Every rank calls it, equally often.

    The metrics of rank 0 count. Without a checkpoint no rank waits for another. A checkpoint is a directory of rank 0,
    or one of each rank: then all their files are stored together, and of files of one name that of the lowest rank.
    When `report()` has returned, the checkpoint is whole and recorded, and the directory may be removed. Each call
    counts as one step of the trial.

    If the training should stop, the function ends after a report with a checkpoint, unless it asks `should_preempt()`
    itself. Raises `InvalidMetricError`, `CheckpointDirectoryError`, `UnevenReportsError`, or what stores raises.
    """
    mode = CheckpointUploadMode(checkpoint_upload_mode)
    is_async = mode is CheckpointUploadMode.ASYNC
    delete = is_async if delete_local_checkpoint_after_upload is None else delete_local_checkpoint_after_upload
    current.session("report()").report(metrics, checkpoint, checkpoint_dir_name, wait=not is_async, delete=delete)


def get_checkpoint() -> Checkpoint | None:
    """The newest checkpoint that was reported; in the beginning the one to go on from, and None in a new trial."""
    return current.session("get_checkpoint()").latest_checkpoint()


def get_all_reported_checkpoints() -> list[ReportedCheckpoint]:
    """All checkpoints of the trial that are there, the oldest one first."""
    return current.session("get_all_reported_checkpoints()").all_checkpoints()


def should_preempt() -> bool:
    """True once the function should report a checkpoint and end. All ranks call it, equally often.

    A function that calls it is not ended by `report()`.
    """
    session = current.session("should_preempt()")
    session.stops_at_checkpoints = False
    return session.context.preempt.should_preempt()


@dataclass(frozen=True)
class PreemptionInfo:
    """The training is to stop soon."""

    deadline_ms: int | None
    """When, in milliseconds since 1970; None if that is not known."""
    preempted_node_to_ranks: dict[str, list[int]]
    """The hosts that are given up, here all, and their ranks."""


def get_preemption_info() -> PreemptionInfo | None:
    """What is known of a stop that was asked for; None while there is none. All ranks call it, equally often.

    The function may save a checkpoint now: it ends after its next report with one, unless it calls `should_preempt()`.
    """
    session = current.session("get_preemption_info()")
    if not session.is_stop_wanted():
        return None
    hosts = session.context.distributed.hosts
    ranks = {host: [rank for rank, each in enumerate(hosts) if each == host] for host in hosts}
    grace_s = known_grace_s()
    return PreemptionInfo(None if grace_s is None else int((time.time() + grace_s) * 1000), ranks)


def get_dataset_shard(dataset_name: str | None = None) -> DatasetShard:
    """This worker's part of a dataset that the trainer was given; without a name, of "train".

    The same object each time. Raises `KeyError` for a name that the trainer was not given.
    """
    return current.session("get_dataset_shard()").shard(dataset_name or "train")


def get_context() -> TrainContext:
    """Who this worker is among the others."""
    return TrainContext(current.session("get_context()"))


class TrainContext:
    """The numbers of this worker, and the Core API's Context in which it trains."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._distributed = session.context.distributed

    @property
    def core_context(self) -> Context:
        """What `core_sdk.core.init()` returns: all of the Core API works here."""
        return self._session.context

    def get_world_size(self) -> int:
        return self._distributed.size

    def get_world_rank(self) -> int:
        return self._distributed.rank

    def get_local_rank(self) -> int:
        return self._distributed.local_rank

    def get_local_world_size(self) -> int:
        """The number of workers on this node."""
        return self._distributed.local_size

    def get_node_rank(self) -> int:
        return self._distributed.cross_rank

    def get_experiment_name(self) -> str:
        """The name of the experiment of this training's trial."""
        return self._session.experiment_name
