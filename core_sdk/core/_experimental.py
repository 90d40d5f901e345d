"""`core_context.experimental`, whose calls may still change."""

from __future__ import annotations

import time
from typing import Protocol

from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import CheckpointUsed
from core_sdk._home.journal import Journal


class _HasUuid(Protocol):
    @property
    def uuid(self) -> str: ...


class _HasCheckpoint(Protocol):
    @property
    def checkpoint(self) -> _HasUuid: ...


class ExperimentalCoreContext(OfOneProcess):
    """Records links from this trial to the checkpoints that it uses."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def report_task_using_checkpoint(self, checkpoint: _HasUuid) -> None:
        """Records that this trial uses a checkpoint of `core_sdk.client`, for inference for example.

        The checkpoint is then not collected while the trial runs. Raises `OSError` if that cannot be recorded.
        """
        self._journal.append_or_raise(CheckpointUsed(time=time.time(), storage_id=checkpoint.uuid))

    def report_task_using_model_version(self, model_version: _HasCheckpoint) -> None:
        """Records that this trial uses the checkpoint of a model version, as `report_task_using_checkpoint` does."""
        self.report_task_using_checkpoint(model_version.checkpoint)
