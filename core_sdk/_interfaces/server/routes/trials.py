"""One trial."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from core_sdk._ground.masking import masked_arguments
from core_sdk._ground.records import Source
from core_sdk._home.attempts.running import attempt_rows
from core_sdk._home.pushes import ActionRequests
from core_sdk._home.rows import AlertRow, AttemptRow, TrialRow
from core_sdk._interfaces.server.route import Cursor, Id, Names, Query, Text, page_of
from core_sdk._interfaces.server.routes.bounds import bounded_trial, num_values
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk.errors import RecordDamagedError

_MAX_ALERTS = 1000


class TrialQuery(Query, frozen=True):
    search: Text = ""
    """Text in the name of a metric, in upper or lower case."""
    names: Names = ()
    """Metrics that are answered in any case, as `group.name`."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    """The largest number of metrics, besides `names`."""
    cursor: Cursor = 0
    """`next` of the page before."""


class SeriesName(msgspec.Struct, frozen=True):
    group: str
    name: str
    last: int | float | str
    """The value at the highest step."""
    ranks: list[Source]
    """The ranks and the writers that have reported it."""


class TrialAnswer(msgspec.Struct, frozen=True):
    trial: TrialRow
    """The trial, with its first 1,000 labels, and the first 1,000 values of its hyperparameters and metadata."""
    num_labels: int
    num_hparams: int
    """The number of values in its hyperparameters, nested ones too."""
    num_metadata: int
    series: list[SeriesName]
    """The metrics that have numbers over steps: a page of those that were found."""
    num_found: int
    """The number of metrics in all pages."""
    next: int | None
    """The cursor of the next page; null on the last."""
    system_groups: list[str]
    """The profiler's groups."""
    resume_points: list[int]
    """The steps from which later attempts went on."""
    alerts: list[AlertRow]
    """The newest ones, at most a thousand."""
    reporting_ranks: list[Source]
    """The ranks, and behind them the writers, that have reported metrics."""
    command: list[str] | None
    working_directory: str | None
    problem: str
    """The problem with a file of the trial that could not be read; empty if there is none."""


class RequestRow(msgspec.Struct, frozen=True):
    """A request that somebody has made to the machine that has sent the trial to a workspace."""

    request_id: str
    verb: str
    by: str
    time: float
    outcome: Literal["waits", "done", "refused", "expired"]
    message: str
    """The reason for a refusal."""
    answer: Any
    """The answer of the verb; null until it is done."""


class RequestsAnswer(msgspec.Struct, frozen=True):
    requests: list[RequestRow]


class AttemptsAnswer(msgspec.Struct, frozen=True):
    attempts: list[AttemptRow]


def trial(shared: SharedView, trial_id: Id, query: TrialQuery) -> TrialAnswer:
    """Returns the record of a trial, and the names of its metrics."""

    (one,) = shared.chosen_trials([trial_id])
    figures, outline = one.figures, shared.outline(trial_id)
    row, alerts = shared.ask(lambda view: (view.trial(trial_id), view.alerts(trial_id)[-_MAX_ALERTS:]))
    known = [(group, name) for group, of_group in figures.items() for name in of_group]
    text, names = query.search.casefold(), set(query.names)
    fitting = [one for one in known if text in ".".join(one).casefold()]
    page, cursor = page_of(fitting, query.cursor, query.limit)
    page = list(dict.fromkeys((*page, *(one for one in known if ".".join(one) in names)))) if names else page
    problem = ""
    try:
        command = shared.home.trial(trial_id).read_command()
    except RecordDamagedError as error:
        command, problem = None, str(error)
    return TrialAnswer(
        trial=bounded_trial(row),
        num_labels=len(row.labels),
        num_hparams=num_values(row.hparams),
        num_metadata=num_values(row.metadata or {}),
        series=[SeriesName(group, name, figures[group][name].last, outline.ranks[group, name]) for group, name in page],
        num_found=len(fitting),
        next=cursor,
        system_groups=[group for group in outline.groups if group not in figures],
        resume_points=outline.resume_points,
        alerts=alerts,
        reporting_ranks=outline.reporting_ranks,
        command=masked_arguments(command.argv) if command else None,
        working_directory=command.cwd if command else None,
        problem=problem,
    )


def attempts(shared: SharedView, trial_id: Id) -> AttemptsAnswer:
    """Returns the executions of the trial's script, in order."""
    return AttemptsAnswer(attempt_rows(shared.home.trial(trial_id)))


def requests(shared: SharedView, trial_id: Id) -> RequestsAnswer:
    """Returns what people have asked of the machine that has sent the trial, with what came of it, the newest last."""
    shared.home.trial(trial_id)
    rows = [
        RequestRow(one.request_id, one.verb, one.by, one.time, one.state, one.message, one.answer)
        for one in ActionRequests(shared.home.root).all()
        if one.trial_id == trial_id
    ]
    return RequestsAnswer(rows)
