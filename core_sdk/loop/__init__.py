"""The parts of a training loop that resumes exactly: the order of the data, schedules, state, and the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_sdk._ground.importing import lazy_names
from core_sdk.loop.schedule import Batch, Counters, Epoch, Record, Seconds, TrainUnit

if TYPE_CHECKING:
    from core_sdk.loop.grouping import GroupedBatchSampler
    from core_sdk.loop.loading import ResumableLoader, resumable
    from core_sdk.loop.rng import seed_all
    from core_sdk.loop.sharded_dataset import ShardedDataset
    from core_sdk.loop.state import State

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
    "GroupedBatchSampler": "grouping",
    "ResumableLoader": "loading",
    "ShardedDataset": "sharded_dataset",
    "State": "state",
    "resumable": "loading",
    "seed_all": "rng",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
