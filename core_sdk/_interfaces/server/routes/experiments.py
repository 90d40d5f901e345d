"""Experiments: the list, one of them, and the picture of its search."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec

from core_sdk._analysis.charts.curves import read_curves
from core_sdk._analysis.charts.horizontal_axis import Series
from core_sdk._analysis.reports import report_html
from core_sdk._analysis.studies import Board, best_curve, read_board, tree_of
from core_sdk._execution.experiments.picture import SearchPicture
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._ground.config.hyperparameters import Categorical, Double, Int, Log
from core_sdk._ground.masking import masked_values
from core_sdk._ground.records import Metric, SearcherMetric, Source, chosen_metric, fields_of, in_order
from core_sdk._home import View
from core_sdk._home.fields import titled
from core_sdk._home.finding.facts import Facts, flat_hparams, metric_named
from core_sdk._home.finding.groups import best_of, grouped_metric
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
from core_sdk.errors import StudyNotFoundError
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
    best_by: str | None
    """The same with its group: min.METRIC or max.METRIC."""
    best: BestTrial | None
    states: dict[str, int]
    """The number of trials in each state."""
    num_variations: int
    """The number of its trials that vary another one."""
    is_study: bool
    """Whether its trials are tries of a study."""
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
    """The best value; of a try the mean of its trials'."""
    spread: float | None = None
    """The standard deviation of the best values of a try's trials; None for one value."""
    num_seeds: int = 1
    """The number of the trials of a try."""


class VariationsAnswer(msgspec.Struct, frozen=True):
    metric: str
    """`group.name`; empty if no trial has reported anything."""
    variations: list[Variation]
    """Each trial before those that vary it; the first 1,000."""
    num_found: int


class StudyAnswer(msgspec.Struct, frozen=True):
    board: Board
    """Each try before those that vary it; the first 1,000."""
    depths: list[int]
    """The depth of each of these tries in the tree."""
    best_curve: list[tuple[float, float]]
    """The best value over the seconds since the first try, as the corners of its steps."""


class ReportAnswer(msgspec.Struct, frozen=True):
    html: str
    """A document of its own, which refers to nothing outside of itself. Secrets are masked."""


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
    return ExperimentFigures(metric.name, _best(trials, metric), duration)


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
    trials = shared.snapshot().trials_of(experiment_id)
    best = None if metric is None else _best(trials, metric)
    return ExperimentAnswer(
        experiment=bounded_experiment(row, MOST_LABELS),
        num_labels=len(row.labels),
        notes=record.notes,
        is_submitted=record.is_submitted,
        metric=metric.name if metric else None,
        smaller_is_better=metric.smaller_is_better if metric else None,
        best_by=None if metric is None else grouped_metric(trials, metric).best_name,
        best=best,
        states=Counter(one.row.state for one in trials),
        num_variations=sum(one.row.parent is not None for one in trials),
        is_study=record.study is not None,
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
                shown = masked_values({path[-1]: list(vals)})[path[-1]]
                choices[".".join(path)] = Choice(values=[flat_hparams({"": one})[""] for one in shown])
            case Log(base, minval, maxval):
                choices[".".join(path)] = Choice(base**minval, base**maxval, is_logarithmic=True)
            case Int(minval, maxval) | Double(minval, maxval):
                choices[".".join(path)] = Choice(minval, maxval)
    return choices


def _best(trials: Sequence[Facts], metric: SearcherMetric) -> BestTrial | None:
    best = best_of(trials, grouped_metric(trials, metric))
    return None if best is None else BestTrial(best.trial_id, best.value)


def search(shared: SharedView, experiment_id: Id) -> SearchAnswer:
    """Returns the rungs and brackets of a submitted experiment, and what became of each trial."""
    if not shared.home.experiment(experiment_id).read().is_submitted:
        message = f"experiment {experiment_id} was not submitted, and has no search"
        raise RequestError(404, "no_search", message, "Its trials have curves all the same.")
    picture = shared.search_picture(experiment_id)
    hparams = [flat_hparams(masked_values(one.hparams)) for one in picture.trials]
    differing, total = differing_values(hparams, _MOST_HPARAMS)
    trials = [replace(one, hparams=values) for one, values in zip(picture.trials, differing, strict=True)]
    return SearchAnswer(**fields_of(picture) | {"trials": trials}, num_differing=total)


def curves(shared: SharedView, experiment_id: Id, query: CurvesQuery) -> CurvesAnswer:
    """Returns the learning curves of the best trials of an experiment."""
    if (asked := _asked(shared, experiment_id, query.metric)) is None:
        return CurvesAnswer("", [], 0, [])
    group, name, metric = asked
    found = sorted(_with_metric(shared, experiment_id, group, name), key=lambda one: one.row.trial_id)
    ranked = metric.best_first(found, lambda one: one.metric(metric.best_name))
    without_number = [one for one in found if one.metric(metric.best_name) is None]
    rows = [one.row for one in (*ranked, *without_number)]

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
    asked = _asked(shared, experiment_id, query.metric)
    metric = asked[2] if asked else None
    branches = trial_tree(shared.snapshot().trials_of(experiment_id))
    told = []
    for branch in branches[:_MOST_VARIATIONS]:
        row, best = branch.trial.row, branch.trial.metric(metric.best_name) if metric else None
        words = row.hypothesis, row.verdict, row.verdict_reason
        found = branch.best(metric.best_name) if metric and branch.seeds else None
        best, spread = (best, None) if found is None else (found.mean, found.std)
        place = branch.depth, row.trial_id, row.name, row.state, row.reason
        told.append(Variation(*place, *words, best, spread, 1 + len(branch.seeds)))
    return VariationsAnswer(metric.name if metric else "", told, len(branches))


def study(shared: SharedView, experiment_id: Id) -> StudyAnswer:
    """Returns a study: its tries as a tree, and the best value over time."""
    record = shared.home.experiment(experiment_id).read()
    if (known := record.study) is None:
        raise StudyNotFoundError.named(record.name, shared.home.root)
    board = shared.ask(lambda view: read_board(shared.home, view, experiment_id, known))
    branches = list(tree_of(board.tries))[:_MOST_VARIATIONS]
    return StudyAnswer(
        replace(board, tries=[one for _, one in branches]),
        [depth for depth, _ in branches],
        best_curve(board),
    )


def report(shared: SharedView, experiment_id: Id) -> ReportAnswer:
    """Returns the experiment as one document, as `core-sdk report` writes it."""
    return ReportAnswer(report_html(shared.home, experiment_id))


def _asked(shared: SharedView, experiment_id: int, asked: str) -> tuple[str, str, SearcherMetric] | None:
    """Returns the group and the name of a metric, and how it is read, with the group in its name.

    Without a name it is the metric that decides, or else any that a trial has; None if there is none. Raises
    `ValueError` for an unknown one.
    """
    decides = chosen_metric(shared.searcher_metric(experiment_id), asked or None, None)
    trials = shared.snapshot().trials_of(experiment_id)
    known = {(group, name) for one in trials for group, metrics in one.metrics.items() for name in metrics}
    if decides is None:
        pair = min(known, key=lambda pair: (pair[0] != "validation", pair[0] != "training", pair), default=None)
    else:
        pair = metric_named(decides.name, known, decides.group)
    if pair is None and asked:
        raise ValueError(f"no trial of experiment {experiment_id} has a metric {asked!r}")
    if pair is None:
        if decides is None:
            return None
        pair = "validation", decides.name.removeprefix("validation.")
    return *pair, msgspec.structs.replace(decides or SearcherMetric(name=""), name=".".join(pair))


def importance(shared: SharedView, experiment_id: Id, query: ImportanceQuery) -> ImportanceAnswer:
    """Returns how much of the differences in a metric each hyperparameter explains by itself."""
    asked = query.metric.removeprefix("min.").removeprefix("max.")
    extreme = query.metric[: len(query.metric) - len(asked)]
    found = _asked(shared, experiment_id, asked)
    if found is None:
        return ImportanceAnswer("", 0, [], 0)
    group, name, _ = found
    metric = f"{extreme}{group}.{name}"
    values = [(one.hparams, one.metric(metric)) for one in _with_metric(shared, experiment_id, group, name)]
    told = importances([(hparams, value) for hparams, value in values if value is not None])
    return ImportanceAnswer(metric, len(values), told[:_MOST_HPARAMS], len(told))


def _with_metric(shared: SharedView, experiment_id: int, group: str, name: str) -> list[Facts]:
    return [one for one in shared.snapshot().trials_of(experiment_id) if name in one.metrics.get(group, {})]
