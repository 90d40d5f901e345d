"""Checkpoints of the training: stored whole or not at all, verified whenever they are read.

There is one way of a save: `CheckpointSave` stages files, agrees with the other ranks, commits and records. A rank that
saves alone is a group of one. What fails on one rank fails on all. Once its files are staged, a save is a value
(`Save`), which `Saves` finishes at once or in a thread. In the thread it has a channel of its own, since the script
goes on making calls on the usual one. What ranks compare and merge are pure functions, in `_metadata` and `_sources`.

The second way is `torch.distributed.checkpoint`, whose collectives take the place of ours: `_dcp`.
"""

from core_sdk.core._checkpoint._context import CheckpointContext, DownloadMode
from core_sdk.core._checkpoint._grace import Grace
