"""Curves: what a trial reported, and the profiler's figures, in buckets with their true minimum and maximum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import msgspec

from core_sdk.records import MAX_INT, Metric
from core_sdk.server.records import Records
from core_sdk.server.route import Id, Names, Query, Rank, Text
from core_sdk.tracking import View
from core_sdk.tracking.rows import AlertRow, Bucket

_MAX_SERIES = 64
_MAX_ALERTS = 200
_EPOCHS = ("epochs", "epoch")

Steps = Annotated[int, msgspec.Meta(ge=-MAX_INT, le=MAX_INT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12, description="Since the Unix epoch.")]
NumBuckets = Annotated[int, msgspec.Meta(ge=2, le=4000)]


class MetricsQuery(Query, frozen=True):
    group: Text = ""
    """The only group to give."""
    names: Names = ()
    """The only metrics to give."""
    x: Annotated[str, msgspec.Meta(pattern=r"^(steps|time|epochs|.+\..+)$", max_length=1000)] = "steps"
    """The meaning of `x`; a metric is given as `group.name`. Buckets are always equally wide in steps."""
    first: Steps | None = None
    """The first step."""
    last: Steps | None = None
    buckets: NumBuckets = 1000
    superseded: bool = False
    """Whether to give what later attempts have superseded, too, in curves of its own."""
    rank: Rank | Literal["all"] | None = None
    """The rank whose reports are given. `all` gives each rank's, in curves of their own. By default each metric is that
    of the lowest rank that reports it."""


class SystemQuery(Query, frozen=True):
    group: Text = ""
    names: Names = ()
    first: Seconds | None = None
    last: Seconds | None = None
    buckets: NumBuckets = 1000


class Curve(msgspec.Struct, frozen=True):
    """A series, as columns of equal length with a value for each bucket."""

    group: str
    name: str
    first_steps: Sequence[float]
    last_steps: Sequence[float]
    x: Sequence[float | None]
    """The place where the bucket's end is drawn."""
    count: Sequence[int]
    minimum: Sequence[Metric | None]
    """null where every value is NaN."""
    maximum: Sequence[Metric | None]
    mean: Sequence[Metric | None]
    attempt: int | None = None
    """The attempt, of a curve that is superseded."""
    rank: int | None = None
    """The rank that has reported it, if ranks were asked for; of the profiler's figures, the rank whose node it is."""


class MetricsAnswer(msgspec.Struct, frozen=True):
    curves: list[Curve]
    superseded: list[Curve]
    resume_points: list[int]
    alerts: list[AlertRow]
    """The newest ones between the first and the last step that no later attempt has superseded, at most 200."""
    num_left_out: int
    """Series that are left out since an answer has at most 64: ask for them by name."""


class SystemAnswer(msgspec.Struct, frozen=True):
    curves: list[Curve]
    """Their steps are milliseconds since the Unix epoch; `x` is in seconds."""
    num_left_out: int


def metrics(records: Records, trial_id: Id, query: MetricsQuery) -> MetricsAnswer:
    """Returns the curves of a trial's metrics."""
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
        ranks: Sequence[int | None] = [query.rank] if query.rank != "all" else view.reporting_ranks(trial_id)
        shown = chosen[: max(1, _MAX_SERIES // max(1, len(ranks)))]

        def curves_of(attempt: int | None = None) -> list[Curve]:
            return [
                _curve(view, query, buckets, of)
                for of in (_Of(trial_id, group, name, rank, attempt) for group, name in shown for rank in ranks)
                if (buckets := of.buckets(view, query.buckets, within))
            ]

        curves = curves_of()
        attempts = range(1, view.trial(trial_id).num_attempts) if query.superseded else ()
        superseded = [curve for attempt in attempts for curve in curves_of(attempt)]
        first, last = within or (-MAX_INT, MAX_INT)
        alerts = [
            alert
            for alert in view.alerts(trial_id)
            if not alert.is_superseded and first <= alert.steps_completed <= last
        ]
        return MetricsAnswer(
            curves, superseded, view.resume_points(trial_id), alerts[-_MAX_ALERTS:], len(chosen) - len(shown)
        )

    return records.ask_of_trial(trial_id, query, read)


def _within(first: int | None, last: int | None) -> tuple[int, int] | None:
    if first is None and last is None:
        return None
    return (-MAX_INT if first is None else first, MAX_INT - 1 if last is None else last)


@dataclass(frozen=True)
class _Of:
    """The points of one curve."""

    trial_id: int
    group: str
    name: str
    rank: int | None
    attempt: int | None
    """The attempt, of those that are superseded."""

    def buckets(self, view: View, num_buckets: int, within: tuple[int, int] | None) -> list[Bucket]:
        return view.buckets(
            self.trial_id,
            self.group,
            self.name,
            num_buckets,
            within=within,
            superseded_of=self.attempt,
            rank=self.rank,
        )

    def times(self, view: View, buckets: Sequence[Bucket]) -> list[float]:
        return view.bucket_times(
            self.trial_id, self.group, self.name, buckets, superseded_of=self.attempt, rank=self.rank
        )


def _curve(view: View, query: MetricsQuery, buckets: Sequence[Bucket], of: _Of) -> Curve:
    x: Sequence[float | None] = [bucket.last_steps for bucket in buckets]
    if query.x == "time":
        x = of.times(view, buckets)
    elif query.x == "epochs":
        x = _epochs(view, of, buckets)
    elif query.x != "steps":
        x = _metric(view, of, buckets, query)
    return _columns(of.group, of.name, buckets, x, attempt=of.attempt, rank=of.rank)


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


def _epochs(view: View, of: _Of, buckets: Sequence[Bucket]) -> list[float | None]:
    """Returns the epoch at the end of each bucket, interpolated between reports; None where none was reported."""
    within = int(buckets[0].first_steps), int(buckets[-1].last_steps)
    for name in _EPOCHS:
        told = replace(of, name=name, attempt=None).buckets(view, 4000, within)
        points = [(one.last_steps, float(one.maximum)) for one in told if one.maximum is not None]
        if points:
            return [_between(points, bucket.last_steps) for bucket in buckets]
    return [None] * len(buckets)


def _metric(view: View, of: _Of, buckets: Sequence[Bucket], query: MetricsQuery) -> list[float | None]:
    """Returns the mean of another metric in each bucket, interpolated between reports; None if it was not reported."""
    within = int(buckets[0].first_steps), int(buckets[-1].last_steps)
    figures = view.figures([of.trial_id]).get(of.trial_id, {})
    for group, name in ((group, name) for group, of_group in figures.items() for name in of_group):
        if f"{group}.{name}" == query.x:
            told = replace(of, group=group, name=name).buckets(view, query.buckets, within)
            points = [(one.last_steps, one.mean) for one in told if one.mean is not None and math.isfinite(one.mean)]
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
    """Returns the profiler's figures of the trial's nodes, over time."""
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
            buckets = view.buckets(
                trial_id, one.group, one.name, query.buckets, within=within, rank=one.rank, is_profile=True
            )
            x = [bucket.last_steps / 1000 for bucket in buckets]
            curves.append(_columns(one.group, one.name, buckets, x, rank=one.rank))
        return SystemAnswer(curves, max(0, len(known) - _MAX_SERIES))

    return records.ask_of_trial(trial_id, query, read)
