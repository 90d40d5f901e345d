"""The table of all trials: filtered, searched, sorted, in pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal

import msgspec

from core_sdk._home.fields import FieldKind, titled
from core_sdk._home.finding.facts import Facts, field_of, problem_with, titles, without_figure
from core_sdk._home.finding.groups import common_metric
from core_sdk._home.finding.order import in_order
from core_sdk._home.finding.where import parse_condition
from core_sdk._home.rows import TrialRow
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.regular_expressions import expression_in, matching
from core_sdk._interfaces.server.route import Cursor, Id, Names, Query, Text, page_of
from core_sdk._interfaces.server.routes.bounds import MOST_LABELS, MOST_LABELS_IN_LIST
from core_sdk._interfaces.server.shared_view import SharedView, Snapshot

Cell = bool | int | float | str | None | list[Any]
Kind = Literal["field", "hyperparameter", "metric"]
TrialIds = Annotated[tuple[Id, ...], msgspec.Meta(max_length=1000)]

_TYPES: dict[FieldKind, str] = {
    "integer": "number",
    "number": "number",
    "time": "time",
    "text": "text",
    "bool": "bool",
    "texts": "list",
}


class ColumnAnswer(msgspec.Struct, frozen=True):
    name: str
    """The name as in conditions, `sort` and `columns`; metrics also have `min.` and `max.` before it."""
    kind: Kind
    type: str
    """number, text, bool, list, time (seconds since the Unix epoch) or mixed."""
    num_trials: int
    """The number of trials that have a value."""
    is_constant: bool = False
    """Whether a hyperparameter has the same value in all trials."""
    varies: bool = False
    """Whether a hyperparameter differs between trials of one experiment."""
    title: str = ""
    """The title of a field; empty for other columns, which are shown under their names."""


_FIELDS = {
    **{name: (field.title, _TYPES[field.kind]) for name, field in titled(TrialRow).items() if field.kind in _TYPES},
    "duration": ("Duration", "number"),
}
_OF_SEVERAL_HOMES = ("owner", "home")


class ColumnsQuery(Query, frozen=True):
    experiment: Id | None = None
    """The experiment whose trials are described; by default all are."""
    trials: TrialIds = ()
    """The only trials that are described."""
    where: Text = ""
    """A condition on the trials that are described. If none fits, all are."""
    containing: Text = ""
    """Text in the trials that are described, as `search` of `/runs`."""
    archived: bool = True
    """Whether to describe also trials that are archived, or whose experiment is."""
    search: Text = ""
    """Text in the name of a hyperparameter or a metric, in upper or lower case."""
    names: Names = ()
    """Columns that are answered in any case; metrics may have `min.` or `max.` before them."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    """The largest number of hyperparameters and metrics, besides `names`."""
    cursor: Cursor = 0
    """`next` of the page before."""


class ColumnsAnswer(msgspec.Struct, frozen=True):
    columns: list[ColumnAnswer]
    """The fields, and as many hyperparameters as metrics, if there are as many: first those that differ between trials,
    and those that most trials have."""
    labels: list[str]
    """The 1,000 labels that most trials have, by name."""
    num_found: int
    """The number of hyperparameters and metrics in all pages."""
    next: int | None
    """The cursor of the next page; null on the last."""
    num_experiments: int
    """The number of experiments to which the trials belong."""
    best_by: str | None = None
    """min.METRIC or max.METRIC, if the searchers of the experiments agree by what a trial is the best one."""


class RunsQuery(Query, frozen=True):
    experiment: Id | None = None
    """The id of an experiment."""
    trials: TrialIds = ()
    """The only trials to list, archived or not."""
    where: Text = ""
    """A condition: lr>0.01 and state=COMPLETED."""
    search: Text = ""
    """Text in a name, a label, the notes, a reason or a hyperparameter, in upper or lower case, or a regular expression
    between slashes: /resnet(18|50)/."""
    sort: Text = "-id"
    """The name of a column; -NAME: the largest first."""
    columns: Names = ("id", "experiment", "state", "steps", "started", "ended", "label")
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 200
    cursor: Cursor = 0
    """`next` of the page before."""
    archived: bool = False
    """Whether to list also trials that are archived, or whose experiment is."""


class RunsAnswer(msgspec.Struct, frozen=True):
    columns: list[str]
    rows: list[list[Cell]]
    """A row for each trial, with a value for each column; null where it has none. Of many labels, the first 100 are
    given."""
    ids: list[int]
    """The trial of each row."""
    num_found: int
    """The number in all pages."""
    num_trials: int
    """Found or not."""
    next: int | None
    """The cursor of the next page; null on the last."""


def columns(shared: SharedView, query: ColumnsQuery) -> ColumnsAnswer:
    """Returns the columns that the table can have: fields, and the hyperparameters and metrics that trials have."""
    snapshot = shared.snapshot()
    everything = _in_question(shared, snapshot, query)
    found = _fitting(snapshot, everything, query.where, query.containing) or everything

    def of_everything() -> tuple[dict[str, str], list[ColumnAnswer]]:
        shown = titles(everything)
        return shown, _columns_of(everything, shown)

    key = f"columns {query.experiment} {query.archived}"
    shown, of_all = of_everything() if query.trials else snapshot.remember(key, of_everything)
    known = of_all if len(found) == len(everything) else _columns_of(found, shown)
    experiment_ids = dict.fromkeys(one.row.experiment_id for one in found)
    text, names = query.search.casefold(), set(map(without_figure, query.names))
    fitting = [one for one in known if text in one.name.casefold()] if text else known
    page, cursor = page_of(fitting, query.cursor, query.limit)
    if names:
        named = {one.name: one for of in (of_all, known) for one in of if one.name in names}
        page = list({one.name: one for one in (*page, *named.values())}.values())
    labels = Counter(label for one in found for label in one.row.labels)
    metric = common_metric(found, map(shared.searcher_metric, experiment_ids))
    return ColumnsAnswer(
        columns=[
            *(
                ColumnAnswer(name, "field", kind, len(found), title=title)
                for name, (title, kind) in _FIELDS.items()
                if shared.home.is_gathered or name not in _OF_SEVERAL_HOMES
            ),
            *sorted(page, key=lambda column: column.kind),
        ],
        labels=sorted(label for label, _ in labels.most_common(MOST_LABELS)),
        num_found=len(fitting),
        next=cursor,
        num_experiments=len(experiment_ids),
        best_by=metric.best_name if metric else None,
    )


def _columns_of(found: Sequence[Facts], shown: Mapping[str, str]) -> list[ColumnAnswer]:
    """Returns all hyperparameters and metrics by their titles, one of each after the other: each page has both."""
    hparams = ([(shown[f"hparams.{name}"], value) for name, value in one.hparams.items()] for one in found)
    metrics = (_metrics(one) for one in found)
    experiment_ids = [one.row.experiment_id for one in found]
    of_kinds = (_columns("hyperparameter", hparams, experiment_ids), _columns("metric", metrics))
    for columns in of_kinds:
        columns.sort(key=lambda column: (column.is_constant, -column.num_trials))
    return [column for both in zip_longest(*of_kinds) for column in both if column is not None]


def _metrics(one: Facts) -> Iterator[tuple[str, Any]]:
    return ((f"{group}.{name}", value) for group, metrics in one.metrics.items() for name, value in metrics.items())


def _columns(
    kind: Kind, values: Iterable[Iterable[tuple[str, Any]]], experiment_ids: Sequence[int] = ()
) -> list[ColumnAnswer]:
    """Returns the columns of the values of all trials. With the experiments of the trials it says what varies there."""
    types: dict[str, dict[str, None]] = {}
    counts: dict[str, int] = {}
    firsts: dict[str, Any] = {}
    differing: set[str] = set()
    in_experiments: dict[tuple[int, str], list[Any]] = {}
    num_trials = 0
    for of_trial, experiment_id in zip_longest(values, experiment_ids):
        num_trials += 1
        for name, value in of_trial:
            if experiment_id is not None:
                in_experiments.setdefault((experiment_id, name), []).append(value)
            types.setdefault(name, {})[_type(value)] = None
            counts[name] = counts.get(name, 0) + 1
            if firsts.setdefault(name, value) != value:
                differing.add(name)
    sizes = Counter(experiment_ids)
    varying = {
        name
        for (experiment_id, name), found in in_experiments.items()
        if len(found) < sizes[experiment_id] or any(value != found[0] for value in found)
    }
    constant = {name for name, count in counts.items() if count == num_trials} - differing
    return [
        ColumnAnswer(
            name,
            kind,
            next(iter(kinds)) if len(kinds) == 1 else "mixed",
            counts[name],
            name in constant,
            name in varying,
        )
        for name, kinds in types.items()
    ]


def _type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "text"
        case _:
            return "mixed"


def runs(shared: SharedView, query: RunsQuery) -> RunsAnswer:
    """Returns the trials of all experiments, or of one, as a table."""
    snapshot = shared.snapshot()
    everything = list(snapshot.trials.values())
    found = _in_question(shared, snapshot, query)
    metrics = snapshot.remember("metrics", lambda: {name for one in everything for name, _ in _metrics(one)})
    # A column of a metric has the name group.name, which a hyperparameter's column never has.
    columns = {name: f"metrics.{name}" if without_figure(name) in metrics else name for name in query.columns}
    sort_name = query.sort.removeprefix("-")
    sort = f"metrics.{sort_name}" if without_figure(sort_name) in metrics else sort_name
    for name in (*columns.values(), *([sort] if sort else [])):
        if name not in _FIELDS and (problem := _problem_with(name, found, everything)):
            raise RequestError(400, "unknown_column", problem)
    found = _fitting(snapshot, found, query.where, query.search)
    if sort:
        found = in_order(found, f"-{sort}" if query.sort.startswith("-") else sort)
    page, cursor = page_of(found, query.cursor, query.limit)
    return RunsAnswer(
        columns=list(query.columns),
        rows=[[_cell(one.value(columns[name])) for name in query.columns] for one in page],
        ids=[one.row.trial_id for one in page],
        num_found=len(found),
        num_trials=len(everything),
        next=cursor,
    )


def _cell(value: Any) -> Cell:
    return list(value[:MOST_LABELS_IN_LIST]) if isinstance(value, list | tuple) else value


def _problem_with(name: str, found: Sequence[Facts], everything: Sequence[Facts]) -> str:
    """Returns what is wrong with a name. It has to mean one thing in the trials in question, or be known elsewhere."""
    is_known_elsewhere_only = not any(one.meanings(name) for one in found) and any(
        one.meanings(name) for one in everything
    )
    return "" if is_known_elsewhere_only else problem_with(name, found or everything)


def _in_question(shared: SharedView, snapshot: Snapshot, query: RunsQuery | ColumnsQuery) -> list[Facts]:
    """Returns the chosen trials, or those of the experiment, or all.

    Unless they were chosen, archived trials may be left out, and trials of archived experiments, except for an
    experiment that is asked for.
    """
    if query.trials:
        return shared.chosen_trials(query.trials)
    trials = list(snapshot.trials.values()) if query.experiment is None else snapshot.trials_of(query.experiment)
    if query.archived:
        return trials
    hidden = {row.experiment_id for row in snapshot.experiments.values() if row.is_archived} - {query.experiment}
    return [one for one in trials if not one.row.is_archived and one.row.experiment_id not in hidden]


def _fitting(snapshot: Snapshot, found: list[Facts], where: str, text: str) -> list[Facts]:
    """Returns the trials that meet a condition and contain a text. Raises `ConditionError`."""
    everything = list(snapshot.trials.values())
    if where:
        condition = parse_condition(where)
        condition.check(lambda name: _problem_with(name, found, everything), lambda name: field_of(name, found))
        found = [one for one in found if condition.holds(one.value)]
    if text:
        texts = snapshot.remember("texts", lambda: {one.row.trial_id: _searched(one) for one in everything})
        if expression := expression_in(text):
            return [found[place] for place in matching(expression, [texts[one.row.trial_id] for one in found])]
        text = text.casefold()
        found = [one for one in found if text in texts[one.row.trial_id]]
    return found


def _searched(one: Facts) -> str:
    """Returns the text of a trial in which a search looks, in lower case."""
    row = one.row
    hparams = (part for name, value in one.hparams.items() for part in (name, str(value)))
    told = (row.name, row.experiment_name, row.state, row.reason, row.status, row.notes)
    texts = (str(row.trial_id), *told, *row.labels, *hparams)
    return "\n".join(texts).casefold()
