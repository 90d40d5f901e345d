"""Checkpoints of the training: stored whole or not at all, verified whenever they are read.

One rank stores alone through `Storage.stage`. What several ranks do together is a context manager of its own: ranks
enter and leave `ShardedSave` and `SharedRestore` in step, what happens in between is each rank's own affair, and what
fails on one fails on all. What they compare and merge on the way are pure functions, in `_metadata` and `_sources`.
"""

from core_sdk.core._checkpoint._context import CheckpointContext, DownloadMode

__all__ = ["CheckpointContext", "DownloadMode"]
