"""The curves of groups of trials: one chart for each metric, with one curve and its band for each group."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from core_sdk._analysis.charts.chart import Chart, ChartCurve
from core_sdk._analysis.charts.common_bins import JoinedMetric, read_common_bins
from core_sdk._analysis.charts.curves import PICTURE_BUCKETS
from core_sdk._analysis.charts.grouped_curves import Band, Centre, GroupedCurve, Join, group_curve
from core_sdk._analysis.charts.horizontal_axis import find_axis, unit
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, View
from core_sdk._home.finding.facts import Facts, problem_with
from core_sdk._home.finding.groups import (
    TrialGroup,
    default_metric,
    group_labels,
    group_trials,
    grouped_metric,
    is_named,
    metric_names,
)
from core_sdk._home.rows import SeriesBucket
from core_sdk.errors import NothingToDrawError, NotRecordedError

_WORDS = {"std": " and standard deviation", "sem": " and standard error", "range": " and range", "none": ""}


def read_groups(
    home: Home, found: Sequence[Facts], names: Sequence[str], best: str | None = None
) -> tuple[list[TrialGroup], SearcherMetric | None]:
    """Returns the groups of the trials, and by what the best trial of a group is found.

    `best` is min.METRIC or max.METRIC; without it, the metrics of the searchers decide. Raises `ValueError` for a name
    that no trial has.
    """
    metric = None if best is None else SearcherMetric.named(best)
    for name in (*names, *([f"metrics.{metric.best_name}"] if metric else [])):
        if problem := problem_with(name, found):
            raise ValueError(problem)
    if metric is not None:
        metric = grouped_metric(found, metric)
    else:
        experiment_ids = dict.fromkeys(one.row.experiment_id for one in found)
        recorded = (home.experiment(experiment_id).read().searcher_metric for experiment_id in experiment_ids)
        metric = default_metric(found, recorded)
    return group_trials(found, names), metric


def read_group_curves(
    view: View,
    groups: Sequence[TrialGroup],
    metric: str,
    *,
    x: str = "steps",
    centre: Centre = "mean",
    band: Band = "std",
    max_points: int = PICTURE_BUCKETS,
) -> list[GroupedCurve]:
    """Returns the curve of a metric, named "group.name", for each group. Raises `NotRecordedError`."""
    members = [one for group in groups for one in group.members]
    pairs = ((of, name) for one in members for of, names in one.metrics.items() for name in names)
    pair = next((pair for pair in pairs if metric == ".".join(pair)), None)
    known = metric_names(members)
    if pair is None:
        raise NotRecordedError(f"the trials have no metric {metric!r} to show", "The metrics", known)
    wanted = JoinedMetric(*pair, find_axis(x, known), max_points)
    trial_ids = [one.row.trial_id for one in members]
    bins = read_common_bins(lambda _id, _key, question: question(view), trial_ids, wanted)
    return [
        group_curve([bins[trial_id] for trial_id in group.trial_ids if trial_id in bins], centre, band)
        for group in groups
    ]


def group_charts(
    view: View,
    groups: Sequence[TrialGroup],
    names: Sequence[str],
    *,
    group: str | None = None,
    metrics: Collection[str] = (),
    x: str = "steps",
    centre: Centre = "mean",
    band: Band = "std",
    max_points: int = PICTURE_BUCKETS,
) -> list[Chart]:
    """Returns a chart for each metric of the trials, or only of the `group` and the `metrics` that are named.

    A metric may be named with its group or without it, or by a regular expression in slashes, as "/loss$/". Raises
    `NotRecordedError`, or `NothingToDrawError` if `x` was not reported with any of them.
    """
    known = metric_names(one for each in groups for one in each.members)
    chosen = [name for name in known if _is_chosen(name, group, metrics)]
    for metric in metrics:
        if not any(_is_chosen(name, group, [metric]) for name in known):
            raise NotRecordedError(f"the trials have no metric {metric!r} to show", "The metrics", known)
    labels = group_labels(groups, names)
    charts = []
    x = find_axis(x, known)
    for name in chosen:
        curves = read_group_curves(view, groups, name, x=x, centre=centre, band=band, max_points=max_points)
        title = f"{name}: {centre}{_WORDS[band]} by {', '.join(names)}{_joined_text(curves, unit(x))}"
        drawn = [
            ChartCurve(f"{label} ({_num_text(curve)})", _buckets(curve))
            for label, curve in zip(labels, curves, strict=True)
            if curve.x
        ]
        if drawn or x == "steps":
            charts.append(Chart(title, drawn))
    if chosen and not charts:
        raise NothingToDrawError(f"{x} was not reported with {' or '.join(chosen)}")
    return charts


def _is_chosen(name: str, group: str | None, metrics: Collection[str]) -> bool:
    is_of_group = group is None or name.startswith(f"{group}.")
    return is_of_group and (not metrics or is_named(name, metrics))


def _joined_text(curves: Sequence[GroupedCurve], unit: str) -> str:
    joins = {curve.join for curve in curves if curve.x}
    words: dict[Join, str] = {"common": f"at common {unit}", "bins": f"in bins of {unit}"}
    return "".join(f", {words[join]}" for join in sorted(joins, reverse=True))


def _num_text(curve: GroupedCurve) -> str:
    least, most = min(curve.num_trials), max(curve.num_trials)
    left_out = f", {curve.num_left_out} values left out" if curve.num_left_out else ""
    return f"n = {most}{left_out}" if least == most else f"n = {least} to {most}{left_out}"


def _buckets(curve: GroupedCurve) -> list[SeriesBucket]:
    columns = zip(curve.x, curve.num_trials, curve.low, curve.high, curve.centre, strict=True)
    return [
        SeriesBucket(x, x, count, centre if low is None else low, centre if high is None else high, centre)
        for x, count, low, high, centre in columns
    ]
