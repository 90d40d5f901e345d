"""What a training function calls."""

from __future__ import annotations

from enum import Enum
from typing import Any

from core_sdk.core import Context
from core_sdk.tracking import Home
from core_sdk.train._checkpoint import Checkpoint, ReportedCheckpoint
from core_sdk.train.worker import current
from core_sdk.train.worker.session import Session


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
        home, experiment_id = Home(self._session.program.home), self._session.context.info.trial.experiment_id
        return home.experiment(experiment_id).read().name
