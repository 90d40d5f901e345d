"""The curves of trials: one chart for each metric, with a curve for each trial that has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from core_sdk._analysis.charts.chart import Chart, ChartCurve
from core_sdk._analysis.charts.curves import PICTURE_BUCKETS, PlacedCurve, read_curves
from core_sdk._analysis.charts.formula import formula_curves, read_formula
from core_sdk._analysis.charts.horizontal_axis import Series, find_axis, origin, unit
from core_sdk._home import View
from core_sdk._home.finding.groups import has_match
from core_sdk.errors import NothingToDrawError, NotRecordedError


def trial_charts(
    view: View,
    trial_ids: Sequence[int],
    *,
    group: str | None = None,
    metrics: Collection[str] = (),
    formulas: Sequence[str] = (),
    x: str = "steps",
    max_buckets: int = PICTURE_BUCKETS,
) -> list[Chart]:
    """Returns a chart for each metric of the trials, or only of the `group` and the `metrics` that are named.

    A metric may be named with its group or without it, or by a regular expression in slashes, as "/loss$/". With
    `formulas`, such as "validation.loss - training.loss", there is a chart for each of them, and for the metrics only
    if some are named. `x` is "steps", "time" (since the start of each trial), "epochs" or a metric. Over steps, those
    from which a trial was resumed are marked if it is the only one. Raises `FormulaError`, `NotRecordedError` or
    `NothingToDrawError`.
    """
    series = {trial_id: [(one.group, one.name) for one in view.series(trial_id)] for trial_id in trial_ids}
    known = list(dict.fromkeys(chain.from_iterable(series.values())))
    in_group = [pair for pair in known if group in (None, pair[0])]
    has_all = not metrics and not formulas
    chosen = [pair for pair in in_group if has_all or any(_is_named(pair, metric) for metric in metrics)]
    if group is not None and all(of != group for of, _ in known):
        check_group(view, trial_ids[0], group)
        raise NothingToDrawError(f"group {group!r} of trial {trial_ids[0]} has no numbers over steps to plot")
    for name in metrics if known else ():
        if not any(_is_named(pair, name) for pair in chosen):
            trials = ", ".join(map(str, trial_ids))
            trials = f"trials {trials} have" if len(trial_ids) > 1 else f"trial {trials} has"
            raise NotRecordedError(f"{trials} no metric {name!r} to show", "The metrics", (found for _, found in known))
    x = find_axis(x, [".".join(pair) for pair in known])
    marks = view.outline(trial_ids[0]).resume_points if len(trial_ids) == 1 and x == "steps" else []
    pairs = {".".join(pair): pair for pair in in_group}
    computed = [read_formula(text, list(pairs)) for text in (formulas if known else ())]

    def read(wanted: Sequence[tuple[str, str]]) -> list[PlacedCurve]:
        found = (Series(trial_id, *pair) for trial_id in trial_ids for pair in wanted if pair in series[trial_id])
        return read_curves(view, found, x, max_buckets)

    def drawn(curve: PlacedCurve) -> ChartCurve:
        trial_id = curve.series.trial_id
        buckets = curve.buckets if x == "steps" else curve.placed(origin(view, trial_id, x))
        return ChartCurve(f"trial {trial_id}", buckets)

    over = "" if x == "steps" else f" over {unit(x)}"
    charts = [Chart(f"{' '.join(pair)}{over}", list(map(drawn, read([pair]))), marks) for pair in chosen]
    for formula in computed:
        found = map(drawn, formula_curves(read([pairs[name] for name in formula.names]), formula))
        of_formula = [one for one in found if one.buckets]
        if not of_formula:
            needed = [*formula.names, *([] if x in ("steps", "time") else [x])]
            raise NothingToDrawError(f"no step has {' and '.join(needed)}, which {formula.text} needs")
        charts.append(Chart(f"{formula.text}{over}", of_formula, marks))
    shown = charts if x == "steps" else [chart for chart in charts if any(one.buckets for one in chart.curves)]
    if charts and not shown:
        raise NothingToDrawError(f"{x} was not reported with {' or '.join(name for _, name in chosen)}")
    return shown


def _is_named(pair: tuple[str, str], metric: str) -> bool:
    """Returns whether the metric is the pair's, without its group or with it, or a regular expression in slashes."""
    return metric in (pair[1], ".".join(pair)) or has_match(".".join(pair), metric)


def check_group(view: View, trial_id: int, group: str) -> None:
    """Raises `NotRecordedError` unless the trial has reported something in the group. The profiler's groups count."""
    if group not in (known := view.outline(trial_id).groups):
        raise NotRecordedError(f"trial {trial_id} has no reports of a group {group!r} to show", "Its groups", known)
