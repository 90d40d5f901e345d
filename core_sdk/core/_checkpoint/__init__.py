"""Checkpoints of the training: stored whole or not at all, verified whenever they are read.

One rank stores alone through `Storage.stage`. What several ranks do together is a context manager of its own: ranks
enter and leave `ShardedSave` and `SharedRestore` in step, what happens in between is each rank's own affair, and what
fails on one fails on all. Once its files are staged, a save is a value (`Save`), which `Saves` finishes in place or in
a thread: the steps are the same. In the thread they run on a group of ranks of its own, since the script goes on making
calls on the usual one. What they compare and merge on the way are pure functions, in `_metadata` and `_sources`.
"""

from core_sdk.core._checkpoint._context import CheckpointContext, DownloadMode
from core_sdk.core._checkpoint._grace import Grace

__all__ = ["CheckpointContext", "DownloadMode", "Grace"]
