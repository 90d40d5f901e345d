"""Curves: what a trial reported, and the profiler's figures, in buckets with their true minimum and maximum."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Annotated

import msgspec

from core_sdk._analysis.charts.horizontal_axis import Series, places, steps_within
from core_sdk._ground.records import MAX_INT, Metric, Source
from core_sdk._home import View
from core_sdk._home.rows import AlertRow, SeriesBucket
from core_sdk._interfaces.server.route import AnyRank, Id, Names, Query, Text, source_of
from core_sdk._interfaces.server.shared_view import SharedView

_MAX_SERIES = 64
_MAX_ALERTS = 200

Steps = Annotated[int, msgspec.Meta(ge=-MAX_INT, le=MAX_INT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12, description="Since the Unix epoch.")]
Axis = Annotated[str, msgspec.Meta(pattern=r"^(steps|time|epochs|.+\..+)$", max_length=1000)]
Place = Annotated[float, msgspec.Meta(ge=-MAX_INT, lt=MAX_INT)]
NumBuckets = Annotated[int, msgspec.Meta(ge=2, le=4000)]


class MetricsQuery(Query, frozen=True):
    group: Text = ""
    """The only group to give."""
    names: Names = ()
    """The only metrics to give."""
    x: Axis = "steps"
    """The meaning of `x`; a metric is given as `group.name`. Buckets are always equally wide in steps."""
    first: Steps | None = None
    """The first step."""
    last: Steps | None = None
    finer_from: Place | None = None
    """Between these two x, the curves of the whole have finer buckets; time is that since the start of each trial."""
    finer_to: Place | None = None
    buckets: NumBuckets = 1000
    superseded: bool = False
    """Whether to give what was superseded, too, in curves of its own."""
    rank: AnyRank | None = None
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
    rank: Source | None = None
    """The rank or the writer that has reported it, if it was asked for; of the profiler's figures, that of the node."""
    last: Metric | None = None
    """The value that was reported last; null if it is NaN, and for the profiler's figures."""


_COLUMNS = ("first_steps", "last_steps", "x", "count", "minimum", "maximum", "mean")


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


def metrics(shared: SharedView, trial_id: Id, query: MetricsQuery) -> MetricsAnswer:
    """Returns the curves of a trial's metrics."""
    # The whole is remembered, so that of a zoom only a part has to be read.
    whole = _whole(shared, trial_id, msgspec.structs.replace(query, finer_from=None, finer_to=None))
    if query.finer_from is None or query.finer_to is None:
        return whole
    within = query.finer_from, query.finer_to

    def refine(view: View) -> MetricsAnswer:
        start = view.trial(trial_id).created if query.x == "time" else 0
        curves, superseded = (
            [_finer(view, trial_id, curve, query, (start + within[0], start + within[1])) for curve in of]
            for of in (whole.curves, whole.superseded)
        )
        return msgspec.structs.replace(whole, curves=curves, superseded=superseded)

    return shared.ask(refine)


def _whole(shared: SharedView, trial_id: int, query: MetricsQuery) -> MetricsAnswer:
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
        chosen_rank = source_of(query.rank)
        ranks: Sequence[Source | None] = [chosen_rank]
        if chosen_rank == "all":
            ranks = view.outline(trial_id).reporting_ranks
        shown = chosen[: max(1, _MAX_SERIES // max(1, len(ranks)))]

        def curves_of(attempt: int | None = None) -> list[Curve]:
            return [
                _curve(view, series, buckets, query.x)
                for series in (Series(trial_id, group, name, rank, attempt) for group, name in shown for rank in ranks)
                if (buckets := series.buckets(view, query.buckets, within))
            ]

        curves = curves_of()
        attempts = range(1, view.trial(trial_id).num_attempts + 1) if query.superseded else ()
        superseded = [curve for attempt in attempts for curve in curves_of(attempt)]
        first, last = within or (-MAX_INT, MAX_INT)
        alerts = [
            alert
            for alert in view.alerts(trial_id)
            if not alert.is_superseded and first <= alert.steps_completed <= last
        ]
        return MetricsAnswer(
            curves, superseded, view.outline(trial_id).resume_points, alerts[-_MAX_ALERTS:], len(chosen) - len(shown)
        )

    return shared.ask_of_trial(trial_id, query, read)


def _within(first: int | None, last: int | None) -> tuple[int, int] | None:
    if first is None and last is None:
        return None
    return (-MAX_INT if first is None else first, MAX_INT - 1 if last is None else last)


def _curve(view: View, series: Series, buckets: Sequence[SeriesBucket], x: str) -> Curve:
    at = places(view, series, buckets, x)
    curve = _columns(series.group, series.name, buckets, at, attempt=series.superseded_of, rank=series.rank)
    return msgspec.structs.replace(curve, last=series.last(view, buckets))


def _finer(view: View, trial_id: int, curve: Curve, query: MetricsQuery, within: tuple[float, float]) -> Curve:
    """Returns the curve with about as many buckets as are asked for in the place of those within two x."""
    series = Series(trial_id, curve.group, curve.name, curve.rank, curve.attempt)
    for _ in range(2):  # what is wanted may be a small part of a single bucket
        steps = steps_within(curve.first_steps, curve.last_steps, curve.x, within)
        if steps is None:
            break
        part = _curve(view, series, series.buckets(view, query.buckets, steps), query.x)
        start = bisect.bisect_left(curve.last_steps, steps[0])
        end = bisect.bisect_right(curve.first_steps, steps[1])
        spliced = {
            name: [*getattr(curve, name)[:start], *getattr(part, name), *getattr(curve, name)[end:]]
            for name in _COLUMNS
        }
        curve = msgspec.structs.replace(curve, **spliced)
    return curve


def _columns(
    group: str,
    name: str,
    buckets: Sequence[SeriesBucket],
    x: Sequence[float | None],
    *,
    attempt: int | None = None,
    rank: Source | None = None,
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


def system(shared: SharedView, trial_id: Id, query: SystemQuery) -> SystemAnswer:
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

    return shared.ask_of_trial(trial_id, query, read)
