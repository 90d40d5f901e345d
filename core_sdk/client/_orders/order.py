"""Sort orders and states, with the names and values of Determined's client."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

_T = TypeVar("_T")


class OrderBy(enum.Enum):
    ASCENDING = "ORDER_BY_ASC"
    ASC = ASCENDING
    DESCENDING = "ORDER_BY_DESC"
    DESC = DESCENDING


class TrainingState(enum.Enum):
    """The state of a trial or of an experiment. A trial has one of the first six; those from PULLING on do not occur.

    A submitted experiment has the state of its search, and is STOPPING while its trials end. Any other experiment has
    the first of the states ACTIVE, QUEUED, PAUSED, ERROR, CANCELED and COMPLETED that one of its trials has.
    """

    ACTIVE = "STATE_ACTIVE"
    QUEUED = "STATE_QUEUED"
    """It waits for its next job in Slurm's queue, or for the next attempt that its experiment begins."""
    PAUSED = "STATE_PAUSED"
    """It was stopped on request, and can be continued."""
    COMPLETED = "STATE_COMPLETED"
    CANCELED = "STATE_CANCELED"
    """It was ended by Ctrl-C, canceled or killed."""
    ERROR = "STATE_ERROR"
    """The script raised an error, or its process died."""
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"
    DELETED = "STATE_DELETED"
    DELETING = "STATE_DELETING"
    DELETE_FAILED = "STATE_DELETE_FAILED"


GOING_ON = frozenset(
    {
        TrainingState.ACTIVE,
        TrainingState.QUEUED,
        TrainingState.STOPPING_CANCELED,
        TrainingState.STOPPING_KILLED,
        TrainingState.STOPPING_COMPLETED,
        TrainingState.STOPPING_ERROR,
    }
)
"""The states that end by themselves."""


class CheckpointState(enum.Enum):
    """The state of a checkpoint. Here only the first three occur."""

    COMPLETED = "STATE_COMPLETED"
    PARTIALLY_DELETED = "STATE_PARTIALLY_DELETED"
    """Some of its files were deleted, so that no trial resumes from it."""
    DELETED = "STATE_DELETED"
    ACTIVE = "STATE_ACTIVE"
    ERROR = "STATE_ERROR"


class ExperimentSortBy(enum.Enum):
    ID = "SORT_BY_ID"
    NAME = "SORT_BY_NAME"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    START_TIME = "SORT_BY_START_TIME"
    END_TIME = "SORT_BY_END_TIME"
    """The end of a submitted experiment."""
    STATE = "SORT_BY_STATE"
    NUM_TRIALS = "SORT_BY_NUM_TRIALS"
    PROGRESS = "SORT_BY_PROGRESS"
    """The progress of the search, which only submitted experiments have."""
    FORKED_FROM = "SORT_BY_FORKED_FROM"


class TrialSortBy(enum.Enum):
    ID = "SORT_BY_ID"
    START_TIME = "SORT_BY_START_TIME"
    END_TIME = "SORT_BY_END_TIME"
    DURATION = "SORT_BY_DURATION"
    """The time from the start to the end, or to now while the trial runs."""
    STATE = "SORT_BY_STATE"
    BATCHES_PROCESSED = "SORT_BY_BATCHES_PROCESSED"
    """`steps_completed`."""
    RESTARTS = "SORT_BY_RESTARTS"
    BEST_VALIDATION_METRIC = "SORT_BY_BEST_VALIDATION_METRIC"
    """The best value of the experiment's searcher metric."""
    LATEST_VALIDATION_METRIC = "SORT_BY_LATEST_VALIDATION_METRIC"


class CheckpointSortBy(enum.Enum):
    UUID = "SORT_BY_UUID"
    TRIAL_ID = "SORT_BY_TRIAL_ID"
    BATCH_NUMBER = "SORT_BY_BATCH_NUMBER"
    """`steps_completed`."""
    END_TIME = "SORT_BY_END_TIME"
    """The time at which it was stored."""
    STATE = "SORT_BY_STATE"
    SEARCHER_METRIC = "SORT_BY_SEARCHER_METRIC"
    """The experiment's searcher metric, as validated at the checkpoint's step."""


class ModelSortBy(enum.Enum):
    NAME = "SORT_BY_NAME"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    CREATION_TIME = "SORT_BY_CREATION_TIME"
    LAST_UPDATED_TIME = "SORT_BY_LAST_UPDATED_TIME"
    NUM_VERSIONS = "SORT_BY_NUM_VERSIONS"


def in_order(
    items: Iterable[_T], key: Callable[[_T], Any], order_by: OrderBy, max_results: int | None = None
) -> list[_T]:
    """Returns the first `max_results` items in order. Items whose key is None or NaN come last in either order."""
    if max_results is not None and max_results < 0:
        raise ValueError(f"max_results is {max_results}; it must be at least 0, or None for all")
    keyed = [(key(item), item) for item in items]
    comparable = [pair for pair in keyed if _is_comparable(pair[0])]
    comparable.sort(key=lambda pair: pair[0], reverse=order_by is OrderBy.DESC)
    incomparable = [pair for pair in keyed if not _is_comparable(pair[0])]
    return [item for _, item in islice(comparable + incomparable, max_results)]


def _is_comparable(key: Any) -> bool:
    return key is not None and key == key
