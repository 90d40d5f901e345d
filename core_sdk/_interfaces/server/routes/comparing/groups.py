"""Groups of trials: which there are, and a curve of each metric for each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from core_sdk._analysis.charts.common_bins import JoinedMetric
from core_sdk._analysis.charts.grouped_curves import Band, Centre, GroupedCurve, refined
from core_sdk._ground.records import Metric, SearcherMetric, fields_of
from core_sdk._home.finding.facts import Facts, problem_with
from core_sdk._home.finding.groups import (
    TrialGroup,
    best_of,
    default_metric,
    group_names,
    group_trials,
    grouped_metric,
    metric_names,
)
from core_sdk._home.rows import source_named
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Id, Names, Query, RankOrWriter, Text
from core_sdk._interfaces.server.routes.metrics import Axis, Place
from core_sdk._interfaces.server.shared_view import SharedView

_MAX_TRIALS = 1000
_MAX_CHARTS = 24
_MAX_NAMES = 1000


class GroupsQuery(Query, frozen=True):
    experiment: Id | None = None
    """An experiment, whose trials are grouped, except archived ones."""
    trials: Annotated[tuple[Id, ...], msgspec.Meta(max_length=_MAX_TRIALS)] = ()
    """These trials, without an experiment."""
    by: Names = ()
    """The names of what the trials of a group have in common: hyperparameters, `label`, or other names, as in
    conditions. Without any, the answer says what they can be."""
    metrics: Names = ()
    """The metrics whose curves are given, as `group.name`: at most 24."""
    x: Axis = "steps"
    """The horizontal axis; a metric is given as `group.name`."""
    finer_from: Place | None = None
    """Between these two x, the curves of the whole have finer points."""
    finer_to: Place | None = None
    centre: Centre = "mean"
    band: Band = "std"
    best: Text = ""
    """The choice of a group's best trial: min.METRIC or max.METRIC; by default by the searcher's metric."""
    points: Annotated[int, msgspec.Meta(ge=2, le=2000)] = 400
    """The largest number of points of each curve."""
    rank: RankOrWriter | None = None
    """The rank whose reports are given, as in `/trials/{trial_id}/metrics`."""


class GroupAnswer(msgspec.Struct, frozen=True):
    values: list[bool | int | float | str | None]
    """A value for each of `by`."""
    trials: list[int]
    best: int | None
    best_value: Metric | None


@dataclass(frozen=True)
class GroupCurveAnswer(GroupedCurve):
    """The curve of a group. If x is time, it is in seconds since the start of each trial."""

    group: int
    """The index of its group."""


class GroupedChartAnswer(msgspec.Struct, frozen=True):
    metric: str
    curves: list[GroupCurveAnswer]
    """The curves of the groups that have a value."""


class GroupsAnswer(msgspec.Struct, frozen=True):
    names: list[str]
    """The first 1,000 names by which the trials can be grouped, first the hyperparameters in which they differ."""
    metrics: list[str]
    """The names of the first 1,000 metrics that the trials have."""
    best_by: str | None
    """min.METRIC or max.METRIC."""
    groups: list[GroupAnswer]
    charts: list[GroupedChartAnswer]
    num_trials: int


def groups(shared: SharedView, query: GroupsQuery) -> GroupsAnswer:
    """Returns groups of trials, and one curve for each group and metric."""
    found = _trials(shared, query)
    for name in query.by:
        if problem := problem_with(name, found):
            raise RequestError(400, "unknown_name", problem)
    experiment_ids = dict.fromkeys(one.row.experiment_id for one in found)
    if query.best:
        metric: SearcherMetric | None = grouped_metric(found, SearcherMetric.named(query.best))
    else:
        metric = default_metric(found, map(shared.searcher_metric, experiment_ids))
    grouped = group_trials(found, query.by) if query.by else []
    return GroupsAnswer(
        names=group_names(found)[:_MAX_NAMES],
        metrics=metric_names(found)[:_MAX_NAMES],
        best_by=metric.best_name if metric else None,
        groups=[_group(one, metric) for one in grouped],
        charts=[_chart(shared, query, grouped, name) for name in query.metrics[:_MAX_CHARTS]] if grouped else [],
        num_trials=len(found),
    )


def _trials(shared: SharedView, query: GroupsQuery) -> list[Facts]:
    if query.experiment is not None:
        found = [one for one in shared.snapshot().trials_of(query.experiment) if not one.row.is_archived]
        if len(found) > _MAX_TRIALS:
            raise RequestError(400, "too_many_trials", f"at most {_MAX_TRIALS} trials can be grouped, not {len(found)}")
        return found
    return shared.chosen_trials(query.trials)


def _group(group: TrialGroup, metric: SearcherMetric | None) -> GroupAnswer:
    best = best_of(group.members, metric)
    trial_id, value = (best.trial_id, best.value) if best else (None, None)
    return GroupAnswer(list(group.values), group.trial_ids, trial_id, value)


def _chart(shared: SharedView, query: GroupsQuery, grouped: Sequence[TrialGroup], metric: str) -> GroupedChartAnswer:
    pair = next((pair for group in grouped for pair in _pairs(group) if f"{pair[0]}.{pair[1]}" == metric), None)
    if pair is None:
        raise RequestError(400, "unknown_name", f"no trial has a metric {metric!r}")
    trial_ids = [trial_id for group in grouped for trial_id in group.trial_ids]
    wanted = JoinedMetric(*pair, query.x, query.points, rank=query.rank and source_named(query.rank))
    bins = shared.common_bins(trial_ids, wanted)
    curves = []
    for index, group in enumerate(grouped):
        if members := [bins[trial_id] for trial_id in group.trial_ids if trial_id in bins]:
            curve = shared.group_curve(members, query.centre, query.band)
            finer = _finer(shared, query, group, wanted, curve)
            curves.append(GroupCurveAnswer(**fields_of(finer), group=index))
    return GroupedChartAnswer(metric, curves)


def _finer(
    shared: SharedView, query: GroupsQuery, group: TrialGroup, wanted: JoinedMetric, curve: GroupedCurve
) -> GroupedCurve:
    """Returns the curve with finer points where they are asked for."""
    if query.finer_from is None or query.finer_to is None or query.finer_from > query.finer_to:
        return curve
    for _ in range(2):  # what is wanted may be a small part of a single bin
        first, end = curve.bins_around(query.finer_from, query.finer_to)
        bins = shared.common_bins(group.trial_ids, replace(wanted, within=(first, end)))
        part = shared.group_curve(list(bins.values()), query.centre, query.band)
        curve = refined(curve, part, first, end)
    return curve


def _pairs(group: TrialGroup) -> Iterator[tuple[str, str]]:
    return ((of, name) for one in group.members for of, metrics in one.metrics.items() for name in metrics)
