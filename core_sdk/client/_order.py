"""In which order things are listed, and the states that they are in."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

_T = TypeVar("_T")


class OrderBy(enum.Enum):
    ASC = "ASC"
    DESC = "DESC"


class TrialState(enum.Enum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    """Stopped on request, to be continued."""
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    """It raised, or its process died without a word."""


class ExperimentState(enum.Enum):
    """ACTIVE while any trial is; else PAUSED, ERROR, COMPLETED, whichever, in this order, any trial is in."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"


class CheckpointState(enum.Enum):
    COMPLETED = "COMPLETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"
    """Some of its files were deleted: no trial goes on from it."""
    DELETED = "DELETED"


class ExperimentSortBy(enum.Enum):
    ID = "ID"
    NAME = "NAME"
    DESCRIPTION = "DESCRIPTION"
    START_TIME = "START_TIME"
    STATE = "STATE"
    NUM_TRIALS = "NUM_TRIALS"


class TrialSortBy(enum.Enum):
    ID = "ID"
    START_TIME = "START_TIME"
    END_TIME = "END_TIME"
    STATE = "STATE"
    BATCHES_PROCESSED = "BATCHES_PROCESSED"
    """`steps_completed`."""
    RESTARTS = "RESTARTS"


class CheckpointSortBy(enum.Enum):
    UUID = "UUID"
    TRIAL_ID = "TRIAL_ID"
    BATCH_NUMBER = "BATCH_NUMBER"
    """`steps_completed`."""
    END_TIME = "END_TIME"
    """When it was stored."""


def in_order(
    items: Iterable[_T], key: Callable[[_T], Any], order_by: OrderBy, max_results: int | None = None
) -> list[_T]:
    """The first `max_results` items; those whose key is None or NaN come last in either order."""
    if max_results is not None and max_results < 0:
        raise ValueError(f"max_results is {max_results}; it must be at least 0, or None for all")
    keyed = [(key(item), item) for item in items]
    comparable = [pair for pair in keyed if _is_comparable(pair[0])]
    comparable.sort(key=lambda pair: pair[0], reverse=order_by is OrderBy.DESC)
    incomparable = [pair for pair in keyed if not _is_comparable(pair[0])]
    return [item for _, item in islice(comparable + incomparable, max_results)]


def _is_comparable(key: Any) -> bool:
    return key is not None and key == key
