"""Samplers that repeat, divide, skip or shuffle what another sampler draws.

Apply them in this order: shuffle, repeat, divide among the ranks, make batches, skip. A `Trainer` does not need them:
it does all of this for a `DataLoader`, by a plan that is a function of the seed and the epoch.
"""

from core_sdk.loop._samplers import (
    DistributedBatchSampler,
    DistributedSampler,
    RepeatBatchSampler,
    RepeatSampler,
    ReproducibleShuffleBatchSampler,
    ReproducibleShuffleSampler,
    SkipBatchSampler,
    SkipSampler,
)

__all__ = [
    "DistributedBatchSampler",
    "DistributedSampler",
    "RepeatBatchSampler",
    "RepeatSampler",
    "ReproducibleShuffleBatchSampler",
    "ReproducibleShuffleSampler",
    "SkipBatchSampler",
    "SkipSampler",
]
