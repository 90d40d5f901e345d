"""Curves: what a trial reported, and the profiler's figures, in buckets with their true minimum and maximum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec

from core_sdk._analysis.charts.curves import PlacedCurve, read_curves, read_finer
from core_sdk._analysis.charts.formula import Formula, FormulaError, formula_curves, read_formula
from core_sdk._analysis.charts.horizontal_axis import Series, origin
from core_sdk._ground.records import MAX_INT, Metric, Source
from core_sdk._home import View
from core_sdk._home.finding.facts import Facts
from core_sdk._home.finding.groups import metric_names
from core_sdk._home.rows import AlertRow, Outline, source_named
from core_sdk._interfaces.server.errors import Problem, refusal_of
from core_sdk._interfaces.server.route import (
    LONGEST_TEXT,
    AnyRank,
    Cursor,
    Id,
    Names,
    Query,
    RankOrWriter,
    Text,
    page_of,
)
from core_sdk._interfaces.server.shared_view import SharedView

_MAX_SERIES = 64
_MAX_ALERTS = 200

Steps = Annotated[int, msgspec.Meta(ge=-MAX_INT, le=MAX_INT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12, description="Since the Unix epoch.")]
Axis = Annotated[str, msgspec.Meta(pattern=r"^(steps|time|epochs|.+\..+)$", max_length=LONGEST_TEXT)]
Place = Annotated[float, msgspec.Meta(ge=-MAX_INT, lt=MAX_INT)]
NumBuckets = Annotated[int, msgspec.Meta(ge=2, le=4000)]


class MetricsQuery(Query, frozen=True):
    group: Text = ""
    """The only group to give."""
    names: Names = ()
    """The only metrics to give."""
    formula: Text = ""
    """A formula of these metrics, each given as `group.name`, or of all: its curves are given instead."""
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


class MetricNamesQuery(Query, frozen=True, kw_only=True):
    trials: Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=1000)]
    rank: RankOrWriter | None = None
    """The rank that has reported them."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    cursor: Cursor = 0
    """`next` of the page before."""


class FormulaQuery(Query, frozen=True):
    formula: Text = ""
    metrics: Names = ()
    """The metrics that there are, as `group.name`."""


class SystemQuery(Query, frozen=True):
    group: Text = ""
    names: Names = ()
    first: Seconds | None = None
    last: Seconds | None = None
    buckets: NumBuckets = 1000


class CurveColumns(msgspec.Struct, frozen=True, kw_only=True):
    """A curve, as columns of equal length with a value for each bucket."""

    x: Sequence[float | None]
    """The place where the bucket's end is drawn."""
    count: Sequence[int]
    minimum: Sequence[Metric | None]
    """The least value of each bucket; null where every value is NaN."""
    maximum: Sequence[Metric | None]
    mean: Sequence[Metric | None]
    last: Metric | None = None
    """The value that was reported last; null if it is NaN, and for the profiler's figures."""


class Curve(CurveColumns, frozen=True, kw_only=True):
    """The curve of a series."""

    group: str
    """Empty if it is computed by a formula, which is then its name."""
    name: str
    first_steps: Sequence[float]
    last_steps: Sequence[float]
    attempt: int | None = None
    """The attempt, of a curve that is superseded."""
    rank: Source | None = None
    """The rank or the writer that has reported it, if it was asked for; for the profiler's figures, the node's rank."""


class MetricsAnswer(msgspec.Struct, frozen=True):
    curves: list[Curve]
    superseded: list[Curve]
    resume_points: list[int]
    alerts: list[AlertRow]
    """The newest ones between the first and the last step that no later attempt has superseded, at most 200."""
    num_left_out: int
    """Series that are left out since an answer has at most 64: ask for them by name."""


class MetricNamesAnswer(msgspec.Struct, frozen=True):
    names: list[str]
    """Each as `group.name`: of validations first, then of training; of a group, those first that most trials have."""
    num_found: int
    """The number in all pages."""
    next: int | None
    """The cursor of the next page; null on the last."""


class FormulaAnswer(msgspec.Struct, frozen=True):
    problem: Problem | None
    """What is wrong with the formula, and where."""


class SystemAnswer(msgspec.Struct, frozen=True):
    curves: list[Curve]
    """The curves, whose steps are milliseconds since the Unix epoch; `x` is in seconds."""
    num_left_out: int


@dataclass(frozen=True)
class _Whole:
    """The curves of a trial, without finer parts. They are remembered, so that a zoom has to read only a part."""

    curves: Sequence[PlacedCurve]
    last: Mapping[Series, Metric | None]
    formula: Formula | None
    resume_points: list[int]
    alerts: list[AlertRow]
    num_left_out: int

    @property
    def num_buckets(self) -> int:
        return sum(len(one.buckets) for one in self.curves)


def metric_names_of(shared: SharedView, query: MetricNamesQuery) -> MetricNamesAnswer:
    """Returns the names of the metrics of some trials."""
    found = metric_names(shared.chosen_trials(query.trials))
    if query.rank:
        rank = source_named(query.rank)
        ranks = (shared.outline(trial_id).ranks for trial_id in query.trials)
        reported = {".".join(metric) for of_trial in ranks for metric, by in of_trial.items() if rank in by}
        found = [name for name in found if name in reported]
    page, cursor = page_of(found, query.cursor, query.limit)
    return MetricNamesAnswer(page, len(found), cursor)


def metrics(shared: SharedView, trial_id: Id, query: MetricsQuery) -> MetricsAnswer:
    """Returns the curves of a trial's metrics."""
    asked = msgspec.structs.replace(query, finer_from=None, finer_to=None)
    (one,) = shared.chosen_trials([trial_id])
    read = partial(_read, one, shared.outline(trial_id), asked)
    whole = shared.ask_of_trial(trial_id, asked, read, size=lambda whole: whole.num_buckets)
    curves = whole.curves if asked == query else shared.ask(partial(_finer, trial_id, whole.curves, query))
    if whole.formula is not None:
        curves = formula_curves(curves, whole.formula)
    shown = [_curve(one, whole.last.get(one.series)) for one in curves]
    return MetricsAnswer(
        [one for one in shown if one.attempt is None],
        [one for one in shown if one.attempt is not None],
        whole.resume_points,
        whole.alerts,
        whole.num_left_out,
    )


def _read(one: Facts, outline: Outline, query: MetricsQuery, view: View) -> _Whole:
    trial_id = one.row.trial_id
    chosen = [
        (group, name)
        for group, of_group in one.figures.items()
        if query.group in ("", group)
        for name in (_named(group, of_group, query.names) if query.names else of_group)
    ]
    formula = None
    if query.formula:
        formula = read_formula(query.formula, query.names or [".".join(pair) for pair in chosen])
        chosen = [pair for pair in chosen if ".".join(pair) in formula.names]
    rank = query.rank and source_named(query.rank)
    ranks: Sequence[Source | None] = outline.reporting_ranks if rank == "all" else [rank]
    shown = chosen[: max(1, _MAX_SERIES // max(1, len(ranks)))]
    attempts = [None, *range(1, one.row.num_attempts + 1)] if query.superseded else [None]
    series = (Series(trial_id, *pair, of, attempt) for attempt in attempts for pair in shown for of in ranks)
    within = _within(query.first, query.last)
    curves = read_curves(view, series, query.x, query.buckets, within)
    first, last = within or (-MAX_INT, MAX_INT)
    alerts = [
        alert for alert in view.alerts(trial_id) if not alert.is_superseded and first <= alert.steps_completed <= last
    ]
    return _Whole(
        curves,
        {one.series: one.series.last(view, one.buckets) for one in curves if formula is None},
        formula,
        outline.resume_points,
        alerts[-_MAX_ALERTS:],
        len(chosen) - len(shown),
    )


def formula(shared: SharedView, query: FormulaQuery) -> FormulaAnswer:
    """Checks a formula of metrics, such as somebody writes just now."""
    try:
        read_formula(query.formula, query.metrics)
    except FormulaError as error:
        return FormulaAnswer(refusal_of(error).failure.error)
    return FormulaAnswer(None)


def _named(group: str, of_group: Mapping[str, object], names: Sequence[str]) -> Iterable[str]:
    """Returns the metrics of a group that are named, with or without their group. A group may have 10^5 others."""
    given = (one for name in names for one in (name, name.removeprefix(f"{group}.")))
    return dict.fromkeys(one for one in given if one in of_group)


def _within(first: int | None, last: int | None) -> tuple[int, int] | None:
    if first is None and last is None:
        return None
    return (-MAX_INT if first is None else first, MAX_INT - 1 if last is None else last)


def _finer(trial_id: int, curves: Sequence[PlacedCurve], query: MetricsQuery, view: View) -> Sequence[PlacedCurve]:
    if query.finer_from is None or query.finer_to is None:
        return curves
    start = origin(view, trial_id, query.x)
    within = start + query.finer_from, start + query.finer_to
    return [read_finer(view, one, query.x, query.buckets, within) for one in curves]


def columns_of(curve: PlacedCurve) -> dict[str, Sequence[Any]]:
    """Returns the fields of `CurveColumns` that have a value for each bucket."""
    figures = ("count", "minimum", "maximum", "mean")
    return {"x": curve.x} | {name: [getattr(bucket, name) for bucket in curve.buckets] for name in figures}


def _curve(curve: PlacedCurve, last: Metric | None = None) -> Curve:
    series = curve.series
    return Curve(
        group=series.group,
        name=series.name,
        first_steps=[bucket.first_steps for bucket in curve.buckets],
        last_steps=[bucket.last_steps for bucket in curve.buckets],
        attempt=series.superseded_of,
        rank=series.rank,
        last=last,
        **columns_of(curve),
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
            series = Series(trial_id, one.group, one.name, one.rank)
            curves.append(_curve(PlacedCurve(series, buckets, [bucket.last_steps / 1000 for bucket in buckets])))
        return SystemAnswer(curves, max(0, len(known) - _MAX_SERIES))

    return shared.ask_of_trial(trial_id, query, read, size=lambda answer: sum(len(one.x) for one in answer.curves))
