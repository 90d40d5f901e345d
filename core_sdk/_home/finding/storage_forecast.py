"""When a storage will be full, from the sizes of the checkpoints of the trials that run, and the time between them."""

from __future__ import annotations

import heapq
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from core_sdk._home.rows import CheckpointRow, TimeRow, TrialRow
from core_sdk._home.view import View

# Of the newest checkpoints the sizes and times count.
_NUM_NEWEST = 10
_MAX_SAVES = 100_000
"""Whoever has room for so many saves need not be told when it ends."""


@dataclass(frozen=True)
class Saver:
    """A training that saves. Until it ends, a policy deletes nothing of what it stores."""

    saved: float
    """The time of its newest checkpoint."""
    interval_s: float
    size_bytes: int
    ends: float | None = None
    """The time at which it will have ended, as far as it reports its progress."""


@dataclass(frozen=True)
class StorageForecast:
    """What a running trial and those beside it will store."""

    free_bytes: int
    size_bytes: int
    """The size of the trial's next checkpoint."""
    interval_s: float
    """The time between two of them."""
    num_others: int
    """The number of other trials that fill the same file system."""
    ends: float | None
    """The time at which the trial will have ended; None if it reports no progress."""
    full: float | None
    """The time of the first checkpoint that will not fit; None if all do until the trial has ended."""
    fitting_interval_s: float | None
    """The least time between two checkpoints of the trial with which all fit until it has ended."""

    def as_values(self) -> dict[str, Any]:
        return dict(vars(self))


def first_that_does_not_fit(free_bytes: int, savers: Iterable[Saver], until: float | None) -> float | None:
    """Returns the time of the first checkpoint for which there is no room; None if there is none `until` then."""
    waiting = [(saver.saved + saver.interval_s, number, saver) for number, saver in enumerate(savers)]
    heapq.heapify(waiting)
    for _ in range(_MAX_SAVES):
        if not waiting:
            return None
        at, number, saver = waiting[0]
        if until is not None and at > until:
            return None
        if saver.ends is not None and at > saver.ends:
            heapq.heappop(waiting)
            continue
        free_bytes -= saver.size_bytes
        if free_bytes < 0:
            return at
        heapq.heapreplace(waiting, (at + saver.interval_s, number, saver))
    return None


def fitting_interval(free_bytes: int, own: Saver, others: Sequence[Saver], now: float) -> float | None:
    """Returns the least time between two checkpoints with which all fit until the training has ended.

    None if it does not say when it ends, or if the others alone fill the storage before.
    """
    if own.ends is None or own.ends <= now:
        return None
    of_others = sum(
        other.size_bytes * max(0, int((min(own.ends, other.ends or own.ends) - other.saved) // other.interval_s))
        for other in others
    )
    num_fit = (free_bytes - of_others) // own.size_bytes
    return (own.ends - own.saved) / num_fit if num_fit > 0 else None


def read_storage_forecast(view: View, trial_id: int) -> StorageForecast | None:
    """Returns what is to be expected of a trial that runs and has saved twice into a directory; else None."""
    trial = view.trial(trial_id)
    checkpoints = view.checkpoints(trial_id=trial_id)
    if trial.state != "ACTIVE" or (own := _saver(view, trial, checkpoints)) is None:
        return None
    if (directory := _directory(checkpoints[0])) is None:
        return None
    device, now = os.stat(directory).st_dev, time.time()  # noqa: PTH116
    others = []
    for other in (each for each in view.trials() if each.state == "ACTIVE" and each.trial_id != trial_id):
        of_other = view.checkpoints(trial_id=other.trial_id)
        saver = _saver(view, other, of_other)
        place = _directory(of_other[0]) if saver is not None else None
        if saver is not None and place is not None and os.stat(place).st_dev == device:  # noqa: PTH116
            others.append(saver)
    free_bytes = shutil.disk_usage(directory).free
    full = first_that_does_not_fit(free_bytes, [own, *others], own.ends)
    return StorageForecast(
        free_bytes=free_bytes,
        size_bytes=own.size_bytes,
        interval_s=own.interval_s,
        num_others=len(others),
        ends=own.ends,
        full=full,
        fitting_interval_s=None if full is None else fitting_interval(free_bytes, own, others, now),
    )


def _saver(view: View, trial: TrialRow, checkpoints: Sequence[CheckpointRow]) -> Saver | None:
    """Returns how the trial saves, by its newest checkpoints; the newest comes first. None if it has saved once."""
    newest = checkpoints[: _NUM_NEWEST + 1]
    gaps = [
        later.time - earlier.time
        for later, earlier in pairwise(newest)
        if later.attempt == earlier.attempt and later.time > earlier.time
    ]
    size_bytes = max((row.size_bytes for row in newest), default=0)
    if not gaps or size_bytes == 0:
        return None
    from statistics import median  # slow to import

    (row,) = view.times(trial_ids=[trial.trial_id])
    return Saver(newest[0].time, median(gaps), size_bytes, _end(trial.progress, row))


def _end(progress: float | None, row: TimeRow) -> float | None:
    """Returns when the training will have ended, if it goes on as fast as it did when it was not stopped."""
    if progress is None or progress <= 0:
        return None
    passed_s = (row.time.wall - row.time.stopped) / 1000
    return time.time() + passed_s * (1 - progress) / progress


def _directory(checkpoint: CheckpointRow) -> Path | None:
    url = urlsplit(checkpoint.storage)
    path = Path(unquote(url.path))
    return path if url.scheme == "file" and path.is_dir() else None
