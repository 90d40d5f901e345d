"""Experiments: the list, one of them, and the picture of its search."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec

from core_sdk._analysis.charts.curves import read_curves
from core_sdk._analysis.charts.horizontal_axis import Series
from core_sdk._execution.experiments.picture import SearchPicture
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._ground.config.hyperparameters import Categorical, Double, Int, Log
from core_sdk._ground.records import Metric, Source, fields_of, in_order
from core_sdk._home import View
from core_sdk._home.fields import titled
from core_sdk._home.finding.facts import Facts, flat_hparams
from core_sdk._home.finding.tree import trial_tree
from core_sdk._home.finding.where import parse_condition
from core_sdk._home.rows import ExperimentRow, source_named
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Cursor, Id, Query, RankOrWriter, Text, page_of
from core_sdk._interfaces.server.routes.bounds import (
    MOST_LABELS,
    MOST_LABELS_IN_LIST,
    bounded_experiment,
    differing_values,
)
from core_sdk._interfaces.server.routes.metrics import CurveColumns, columns_of
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk.search._importance import Importance, importances

_MOST_HPARAMS = 100
_MOST_CHOICES = 1000
_MOST_VARIATIONS = 1000
_OF_SEARCH = ("searcher", "progress", "ended")
_NAMES = (*titled(ExperimentRow), *_OF_SEARCH)


class ExperimentsQuery(Query, frozen=True):
    where: Text = ""
    """A condition over id, name, state, trials, parent, label, description, created, archived, searcher, progress and
    ended."""
    search: Text = ""
    """Text in the name, the description or a label."""
    sort: Text = "-id"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200
    cursor: Cursor = 0
    archived: bool = False


class BestTrial(msgspec.Struct, frozen=True):
    trial_id: int
    value: Metric


class ExperimentFigures(msgspec.Struct, frozen=True):
    """The part of a list's row that an experiment's trials tell."""

    metric: str | None = None
    """The searcher's metric, which says which trial is best."""
    best: BestTrial | None = None
    duration: float | None = None
    """The seconds from the first start to the end of the last trial; null while one goes on."""


class ExperimentsAnswer(msgspec.Struct, frozen=True):
    experiments: list[ExperimentRow]
    """The first 100 labels."""
    figures: list[ExperimentFigures]
    """The figures of the experiments, in the same order."""
    num_found: int
    next: int | None


class Choice(msgspec.Struct, frozen=True):
    """The values that a searcher can choose for a hyperparameter: a range, or a list."""

    low: float | None = None
    high: float | None = None
    is_logarithmic: bool = False
    values: list[Any] | None = None
    """The values in their order, with lists and maps as JSON; None for a range."""


class ExperimentAnswer(msgspec.Struct, frozen=True):
    experiment: ExperimentRow
    """The experiment, with its first 1,000 labels."""
    num_labels: int
    notes: str
    """Markdown, as somebody wrote it: to be sanitised."""
    is_submitted: bool
    """False if it is only the name of trials."""
    metric: str | None
    """The one that says which trial is best."""
    smaller_is_better: bool | None
    best: BestTrial | None
    states: dict[str, int]
    """The number of trials in each state."""
    num_variations: int
    """The number of its trials that vary another one."""
    choices: dict[str, Choice]
    """The choices of what is searched, by the dotted names of hyperparameters; at most 1,000."""


@dataclass(frozen=True)
class SearchAnswer(SearchPicture):
    """A search, whose trials have the hyperparameters in which they differ, by dotted name: the first 100."""

    num_differing: int
    """The number of hyperparameters in which the trials differ."""


class CurvesQuery(Query, frozen=True):
    metric: Text = ""
    """`group.name`; without one, the searcher's."""
    top: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20
    """The number of the best trials to give, and no others."""
    x: Literal["steps", "time"] = "steps"
    buckets: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 200
    rank: RankOrWriter | None = None
    """The rank whose reports are given, of the same trials. By default it is the lowest rank that has reported the
    metric."""


class TrialCurve(CurveColumns, frozen=True, kw_only=True):
    trial_id: int
    state: str


class CurvesAnswer(msgspec.Struct, frozen=True):
    metric: str
    """`group.name`; empty if no trial has reported anything."""
    curves: list[TrialCurve]
    """The best trial first."""
    num_trials: int
    """The number of trials that have the metric."""
    reporting_ranks: list[Source]
    """The ranks that have reported metrics in any of the best trials."""


class VariationsQuery(Query, frozen=True):
    metric: Text = ""
    """`group.name`; without one, the searcher's."""


class Variation(msgspec.Struct, frozen=True):
    depth: int
    """The number of trials above it; 0 for one that varies none of the experiment."""
    trial_id: int
    name: str
    state: str
    reason: str
    hypothesis: str
    verdict: str
    verdict_reason: str
    best: Metric | None


class VariationsAnswer(msgspec.Struct, frozen=True):
    metric: str
    """`group.name`; empty if no trial has reported anything."""
    variations: list[Variation]
    """Each trial before those that vary it; the first 1,000."""
    num_found: int


class ImportanceQuery(Query, frozen=True):
    metric: Text = ""
    """A metric, as in conditions, also `min.` or `max.` of one; without one, the searcher's."""


class ImportanceAnswer(msgspec.Struct, frozen=True):
    metric: str
    num_trials: int
    """The number of trials that have the metric."""
    importances: list[Importance]
    """The 100 most important hyperparameters."""
    num_importances: int
    """The number of hyperparameters in which the trials differ."""


def experiments(shared: SharedView, query: ExperimentsQuery) -> ExperimentsAnswer:
    """Returns the experiments, by default the newest first."""
    condition = parse_condition(query.where) if query.where else None
    if condition is not None:
        condition.check(_problem_with, titled(ExperimentRow).get)
    text = query.search.casefold()
    found = [
        row
        for row in shared.snapshot().experiments.values()
        if (query.archived or not row.is_archived)
        and (condition is None or condition.holds(_values(row).get))
        and any(text in part.casefold() for part in (row.name, row.description, *row.labels))
    ]
    found = _in_order(found, query.sort)
    page, cursor = page_of(found, query.cursor, query.limit)
    shown = [bounded_experiment(row, MOST_LABELS_IN_LIST) for row in page]
    return ExperimentsAnswer(shown, _figures(shared, page), len(found), cursor)


def _figures(shared: SharedView, rows: Sequence[ExperimentRow]) -> list[ExperimentFigures]:
    trials: dict[int, list[Facts]] = defaultdict(list)
    for one in shared.snapshot().trials.values():
        trials[one.row.experiment_id].append(one)
    return [_figures_of(shared, row, trials[row.experiment_id]) for row in rows]


def _figures_of(shared: SharedView, row: ExperimentRow, trials: Sequence[Facts]) -> ExperimentFigures:
    started = min(row.created, *(one.row.created for one in trials)) if trials else row.created
    ended = (row.search and row.search.ended) or max((one.row.ended or 0.0 for one in trials), default=0.0)
    duration = None if row.state in ("ACTIVE", "QUEUED") or not ended else max(0.0, ended - started)
    if (metric := shared.searcher_metric(row.experiment_id)) is None:
        return ExperimentFigures(duration=duration)
    name = f"{'min' if metric.smaller_is_better else 'max'}.validation.{metric.name}"
    values = [(value, one.row.trial_id) for one in trials if isinstance(value := one.metric(name), int | float)]
    best = min(values, key=lambda one: _rank(one[0], metric.smaller_is_better), default=None)
    return ExperimentFigures(metric.name, best and BestTrial(best[1], best[0]), duration)


def _problem_with(name: str) -> str:
    return "" if name in _NAMES else f"an experiment has no {name!r}, only {', '.join(_NAMES)}"


def _values(row: ExperimentRow) -> dict[str, Any]:
    own = {column: getattr(row, field.name) for column, field in titled(ExperimentRow).items()}
    return own | {name: getattr(row.search, name, None) for name in _OF_SEARCH}


def _in_order(rows: Sequence[ExperimentRow], sort: str) -> list[ExperimentRow]:
    name = sort.removeprefix("-")
    if name not in _NAMES:
        raise ValueError(f"an experiment cannot be sorted by {name!r}, only by {', '.join(_NAMES)}")
    keyed = [(row, _values(row)[name]) for row in rows]
    with_value = sorted((one for one in keyed if one[1] is not None), key=lambda one: one[1], reverse=sort[:1] == "-")
    return [row for row, _ in with_value] + [row for row, value in keyed if value is None]


def experiment(shared: SharedView, experiment_id: Id) -> ExperimentAnswer:
    """Returns the record of an experiment, and its best trial."""
    record = shared.home.experiment(experiment_id).read()
    row = shared.ask(lambda view: view.experiment(experiment_id))
    metric = record.searcher_metric
    best = None if metric is None else _best(shared, experiment_id, metric.name, metric.smaller_is_better)
    trials = shared.snapshot().trials_of(experiment_id)
    return ExperimentAnswer(
        experiment=bounded_experiment(row, MOST_LABELS),
        num_labels=len(row.labels),
        notes=record.notes,
        is_submitted=record.is_submitted,
        metric=metric.name if metric else None,
        smaller_is_better=metric.smaller_is_better if metric else None,
        best=best,
        states=Counter(one.row.state for one in trials),
        num_variations=sum(one.row.parent is not None for one in trials),
        choices=_choices(shared, experiment_id) if record.is_submitted else {},
    )


def _choices(shared: SharedView, experiment_id: int) -> dict[str, Choice]:
    space = SubmittedExperiment(shared.home, experiment_id).config.hyperparameters
    choices: dict[str, Choice] = {}
    for path, leaf in space.leaves():
        if len(choices) == _MOST_CHOICES:
            break
        match leaf:
            case Categorical(vals):
                # As the hyperparameters of trials are shown.
                choices[".".join(path)] = Choice(values=[flat_hparams({"": one})[""] for one in vals])
            case Log(base, minval, maxval):
                choices[".".join(path)] = Choice(base**minval, base**maxval, is_logarithmic=True)
            case Int(minval, maxval) | Double(minval, maxval):
                choices[".".join(path)] = Choice(minval, maxval)
    return choices


def _best(shared: SharedView, experiment_id: int, metric: str, smaller_is_better: bool) -> BestTrial | None:
    values = shared.ask(lambda view: view.best_validations(experiment_id, metric, smaller_is_better=smaller_is_better))
    choose = min if smaller_is_better else max
    trial_id = choose(values, key=lambda one: values[one], default=None)
    return None if trial_id is None else BestTrial(trial_id, values[trial_id])


def search(shared: SharedView, experiment_id: Id) -> SearchAnswer:
    """Returns the rungs and brackets of a submitted experiment, and what became of each trial."""
    if not shared.home.experiment(experiment_id).read().is_submitted:
        message = f"experiment {experiment_id} was not submitted, and has no search"
        raise RequestError(404, "no_search", message, "Its trials have curves all the same.")
    picture = shared.search_picture(experiment_id)
    differing, total = differing_values([flat_hparams(one.hparams) for one in picture.trials], _MOST_HPARAMS)
    trials = [replace(one, hparams=values) for one, values in zip(picture.trials, differing, strict=True)]
    return SearchAnswer(**fields_of(picture) | {"trials": trials}, num_differing=total)


def curves(shared: SharedView, experiment_id: Id, query: CurvesQuery) -> CurvesAnswer:
    """Returns the learning curves of the best trials of an experiment."""
    group, name, smaller_is_better = _metric(shared, experiment_id, query.metric)
    if not name:
        return CurvesAnswer("", [], 0, [])
    found = _with_metric(shared, experiment_id, group, name)
    best: dict[int, Any] = {one.row.trial_id: one.metrics[group][name] for one in found}
    if group == "validation":
        best |= shared.ask(lambda view: view.best_validations(experiment_id, name, smaller_is_better=smaller_is_better))
    rows = [one.row for one in found]
    rows.sort(key=lambda row: _rank(best[row.trial_id], smaller_is_better))

    def read(view: View) -> CurvesAnswer:
        shown = {row.trial_id: row for row in rows[: query.top]}
        series = (Series(trial_id, group, name, query.rank and source_named(query.rank)) for trial_id in shown)
        drawn = [
            TrialCurve(
                trial_id=curve.series.trial_id,
                state=shown[curve.series.trial_id].state,
                last=curve.series.last(view, curve.buckets),
                **columns_of(curve),
            )
            for curve in read_curves(view, series, query.x, query.buckets)
        ]
        ranks = {rank for trial_id in shown for rank in view.outline(trial_id).reporting_ranks}
        return CurvesAnswer(f"{group}.{name}", drawn, len(found), sorted(ranks, key=in_order))

    return shared.ask(read)


def variations(shared: SharedView, experiment_id: Id, query: VariationsQuery) -> VariationsAnswer:
    """Returns the trials that vary others, and those that they vary, as a tree."""
    group, name, smaller_is_better = _metric(shared, experiment_id, query.metric)
    metric = f"{group}.{name}".strip(".")
    extreme = "min" if smaller_is_better else "max"
    branches = trial_tree(shared.snapshot().trials_of(experiment_id))
    told = []
    for branch in branches[:_MOST_VARIATIONS]:
        row, best = branch.trial.row, branch.trial.metric(f"{extreme}.{metric}") if metric else None
        words = row.hypothesis, row.verdict, row.verdict_reason
        told.append(Variation(branch.depth, row.trial_id, row.name, row.state, row.reason, *words, best))
    return VariationsAnswer(metric, told, len(branches))


def _rank(value: float, smaller_is_better: bool) -> tuple[bool, float]:
    """Returns the sort key of a value: the best comes first, and NaN last."""
    return value != value, value if smaller_is_better else -value


def _metric(shared: SharedView, experiment_id: int, asked: str) -> tuple[str, str, bool]:
    """Returns the metric's group and name, and whether smaller is better.

    Without a name it is the searcher's metric, or else any that a trial has. Raises `ValueError` for an unknown one.
    """
    recorded = shared.home.experiment(experiment_id).read().searcher_metric
    smaller_is_better = recorded.smaller_is_better if recorded else True
    if not asked and recorded is not None:
        return "validation", recorded.name, smaller_is_better
    known = {
        (group, name)
        for one in shared.snapshot().trials_of(experiment_id)
        for group, metrics in one.metrics.items()
        for name in metrics
    }
    for group, name in sorted(known, key=lambda pair: (pair[0] != "validation", pair[0] != "training", pair)):
        if asked in ("", f"{group}.{name}", name):
            return group, name, smaller_is_better
    if asked:
        raise ValueError(f"no trial of experiment {experiment_id} has a metric {asked!r}")
    return "", "", smaller_is_better


def importance(shared: SharedView, experiment_id: Id, query: ImportanceQuery) -> ImportanceAnswer:
    """Returns how much of the differences in a metric each hyperparameter explains by itself."""
    asked = query.metric.removeprefix("min.").removeprefix("max.")
    extreme = query.metric[: len(query.metric) - len(asked)]
    group, name, _ = _metric(shared, experiment_id, asked)
    metric = f"{extreme}{group}.{name}"
    values = [(one.hparams, one.metric(metric)) for one in _with_metric(shared, experiment_id, group, name)]
    told = importances([(hparams, value) for hparams, value in values if value is not None])
    return ImportanceAnswer(metric.strip("."), len(values), told[:_MOST_HPARAMS], len(told))


def _with_metric(shared: SharedView, experiment_id: int, group: str, name: str) -> list[Facts]:
    return [one for one in shared.snapshot().trials_of(experiment_id) if name in one.metrics.get(group, {})]
