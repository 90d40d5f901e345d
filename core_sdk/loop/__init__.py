"""The parts of a training loop that resumes exactly: the order of the data, schedules, state, and the driver."""

from core_sdk.loop.grouping import GroupedBatchSampler
from core_sdk.loop.loading import ResumableLoader, resumable
from core_sdk.loop.schedule import Batch, Counters, Epoch, Record, Seconds, TrainUnit
from core_sdk.loop.state import State

__all__ = [
    "Batch",
    "Counters",
    "Epoch",
    "GroupedBatchSampler",
    "Record",
    "ResumableLoader",
    "Seconds",
    "State",
    "TrainUnit",
    "resumable",
]
