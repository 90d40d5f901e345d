"""Curves: what a trial reported, and the profiler's figures, in buckets with their true minimum and maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from core_sdk.records import MAX_INT, Metric
from core_sdk.server.records import Records
from core_sdk.server.route import Id, Names, Query, Text
from core_sdk.tracking import View
from core_sdk.tracking.rows import Bucket

_MAX_SERIES = 64
_EPOCHS = ("epochs", "epoch")

Steps = Annotated[int, msgspec.Meta(ge=-MAX_INT, le=MAX_INT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12, description="Since the Unix epoch.")]
NumBuckets = Annotated[int, msgspec.Meta(ge=2, le=4000)]


class MetricsQuery(Query, frozen=True):
    group: Text = ""
    """Only this group."""
    names: Names = ()
    """Only these metrics."""
    x: Literal["steps", "time", "epochs"] = "steps"
    """What `x` holds; buckets are always equally wide in steps."""
    first: Steps | None = None
    """The first step."""
    last: Steps | None = None
    buckets: NumBuckets = 1000
    superseded: bool = False
    """Also what later attempts have superseded, in curves of its own."""


class SystemQuery(Query, frozen=True):
    group: Text = ""
    names: Names = ()
    first: Seconds | None = None
    last: Seconds | None = None
    buckets: NumBuckets = 1000


class Curve(msgspec.Struct, frozen=True):
    """One series, as columns of equal length with a value for each bucket."""

    group: str
    name: str
    first_steps: Sequence[float]
    last_steps: Sequence[float]
    x: Sequence[float | None]
    """Where the bucket's end is drawn."""
    count: Sequence[int]
    minimum: Sequence[Metric | None]
    """null where every value is NaN."""
    maximum: Sequence[Metric | None]
    mean: Sequence[float | None]
    attempt: int | None = None
    """The attempt, of a curve that is superseded."""
    rank: int | None = None
    """The rank whose node it is, of the profiler's figures."""


class MetricsAnswer(msgspec.Struct, frozen=True):
    curves: list[Curve]
    superseded: list[Curve]
    resume_points: list[int]
    num_left_out: int
    """Series that are left out since an answer has at most 64: ask for them by name."""


class SystemAnswer(msgspec.Struct, frozen=True):
    curves: list[Curve]
    """Their steps are milliseconds since the Unix epoch; `x` is in seconds."""
    num_left_out: int


def metrics(records: Records, trial_id: Id, query: MetricsQuery) -> MetricsAnswer:
    """The curves of a trial's metrics."""
    wanted = set(query.names)
    within = _within(query.first, query.last)

    def read(view: View) -> MetricsAnswer:
        view.trial(trial_id)
        figures = view.figures([trial_id]).get(trial_id, {})
        known = [(group, name) for group, of_group in figures.items() for name in of_group]
        chosen = [
            (group, name)
            for group, name in known
            if query.group in ("", group) and (not wanted or name in wanted or f"{group}.{name}" in wanted)
        ]
        shown = chosen[:_MAX_SERIES]
        curves = [
            _curve(view, trial_id, group, name, query, buckets)
            for group, name in shown
            if (buckets := view.buckets(trial_id, group, name, query.buckets, within=within))
        ]
        attempts = range(1, view.trial(trial_id).num_attempts) if query.superseded else ()
        superseded = [
            _curve(view, trial_id, group, name, query, buckets, attempt)
            for attempt in attempts
            for group, name in shown
            if (buckets := view.buckets(trial_id, group, name, query.buckets, within=within, superseded_of=attempt))
        ]
        return MetricsAnswer(curves, superseded, view.resume_points(trial_id), len(chosen) - len(shown))

    return records.ask_of_trial(trial_id, query, read)


def _within(first: int | None, last: int | None) -> tuple[int, int] | None:
    if first is None and last is None:
        return None
    return (-MAX_INT if first is None else first, MAX_INT - 1 if last is None else last)


def _curve(
    view: View,
    trial_id: int,
    group: str,
    name: str,
    query: MetricsQuery,
    buckets: Sequence[Bucket],
    attempt: int | None = None,
) -> Curve:
    x: Sequence[float | None] = [bucket.last_steps for bucket in buckets]
    if query.x == "time":
        x = view.bucket_times(trial_id, group, name, buckets, superseded_of=attempt)
    elif query.x == "epochs" and buckets:
        x = _epochs(view, trial_id, group, buckets)
    return _columns(group, name, buckets, x, attempt=attempt)


def _columns(
    group: str,
    name: str,
    buckets: Sequence[Bucket],
    x: Sequence[float | None],
    *,
    attempt: int | None = None,
    rank: int | None = None,
) -> Curve:
    return Curve(
        group,
        name,
        [bucket.first_steps for bucket in buckets],
        [bucket.last_steps for bucket in buckets],
        x,
        [bucket.count for bucket in buckets],
        [bucket.minimum for bucket in buckets],
        [bucket.maximum for bucket in buckets],
        [bucket.mean for bucket in buckets],
        attempt,
        rank,
    )


def _epochs(view: View, trial_id: int, group: str, buckets: Sequence[Bucket]) -> list[float | None]:
    """The epoch at the end of each bucket, between those that were reported; None where none was reported."""
    within = int(buckets[0].first_steps), int(buckets[-1].last_steps)
    for name in _EPOCHS:
        told = view.buckets(trial_id, group, name, 4000, within=within)
        points = [(one.last_steps, float(one.maximum)) for one in told if one.maximum is not None]
        if points:
            return [_between(points, bucket.last_steps) for bucket in buckets]
    return [None] * len(buckets)


def _between(points: Sequence[tuple[float, float]], steps: float) -> float:
    low, high = 0, len(points) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if points[middle][0] <= steps else (low, middle)
    (first, at_first), (last, at_last) = points[low], points[high]
    if last == first:
        return at_first
    part = min(1.0, max(0.0, (steps - first) / (last - first)))
    return at_first + part * (at_last - at_first)


def system(records: Records, trial_id: Id, query: SystemQuery) -> SystemAnswer:
    """The profiler's figures of the trial's nodes, over time."""
    wanted = set(query.names)
    first, last = (None if at is None else int(at * 1000) for at in (query.first, query.last))
    within = _within(first, last)

    def read(view: View) -> SystemAnswer:
        view.trial(trial_id)
        known = [
            one
            for one in view.profile_series(trial_id)
            if query.group in ("", one.group) and (not wanted or one.name in wanted)
        ]
        curves = []
        for one in known[:_MAX_SERIES]:
            buckets = view.buckets(trial_id, one.group, one.name, query.buckets, within=within, profiled_rank=one.rank)
            x = [bucket.last_steps / 1000 for bucket in buckets]
            curves.append(_columns(one.group, one.name, buckets, x, rank=one.rank))
        return SystemAnswer(curves, max(0, len(known) - _MAX_SERIES))

    return records.ask_of_trial(trial_id, query, read)
