"""The parts of a training loop that resumes exactly: the order of the data, schedules, state, and the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_sdk._ground.importing import lazy_names
from core_sdk.loop._schedule import Batch, Counters, Epoch, Record, Seconds, TrainUnit

if TYPE_CHECKING:
    from core_sdk.loop._grouping import GroupedBatchSampler
    from core_sdk.loop._loading import ResumableLoader, resumable
    from core_sdk.loop._rng import seed_all
    from core_sdk.loop._sharded_dataset import ShardedDataset
    from core_sdk.loop._state import State

__all__ = [
    "Batch",
    "Counters",
    "Epoch",
    "GroupedBatchSampler",
    "Record",
    "ResumableLoader",
    "Seconds",
    "ShardedDataset",
    "State",
    "TrainUnit",
    "resumable",
    "seed_all",
]

# Loaded when first used: they need the channel between ranks, and the import of core_sdk.pytorch should be quick.
_NAMES = {
    "GroupedBatchSampler": "_grouping",
    "ResumableLoader": "_loading",
    "ShardedDataset": "_sharded_dataset",
    "State": "_state",
    "resumable": "_loading",
    "seed_all": "_rng",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
