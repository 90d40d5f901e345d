"""One trial."""

from __future__ import annotations

from typing import Any

import msgspec

from core_sdk.errors import RecordDamagedError
from core_sdk.server.route import Id
from core_sdk.server.shared_view import SharedView
from core_sdk.tracking.attempts.running import attempt_rows
from core_sdk.tracking.rows import AlertRow, AttemptRow, TrialRow

_MAX_ALERTS = 1000


class SeriesName(msgspec.Struct, frozen=True):
    group: str
    name: str
    last: int | float | str
    """The value at the highest step."""
    ranks: list[int]
    """The ranks that have reported it."""


class TrialAnswer(msgspec.Struct, frozen=True):
    trial: TrialRow
    series: list[SeriesName]
    """The metrics that have numbers over steps."""
    system_groups: list[str]
    """The profiler's groups."""
    resume_points: list[int]
    """The steps from which later attempts went on."""
    alerts: list[AlertRow]
    """The newest ones, at most a thousand."""
    reporting_ranks: list[int]
    """The ranks that have reported metrics."""
    command: list[str] | None
    working_directory: str | None
    problem: str
    """The problem with a file of the trial that could not be read; empty if there is none."""


class AttemptsAnswer(msgspec.Struct, frozen=True):
    attempts: list[AttemptRow]


def trial(shared: SharedView, trial_id: Id) -> TrialAnswer:
    """Returns the record of a trial, and the names of its metrics."""

    def read(view: Any) -> tuple[Any, ...]:
        return (
            view.trial(trial_id),
            view.figures([trial_id]).get(trial_id, {}),
            view.outline(trial_id),
            view.alerts(trial_id)[-_MAX_ALERTS:],
        )

    row, figures, outline, alerts = shared.ask(read)
    problem = ""
    try:
        command = shared.home.trial(trial_id).read_command()
    except RecordDamagedError as error:
        command, problem = None, str(error)
    return TrialAnswer(
        trial=row,
        series=[
            SeriesName(group, name, found.last, outline.ranks[group, name])
            for group, of_group in figures.items()
            for name, found in of_group.items()
        ],
        system_groups=[group for group in outline.groups if group not in figures],
        resume_points=outline.resume_points,
        alerts=alerts,
        reporting_ranks=outline.reporting_ranks,
        command=command.argv if command else None,
        working_directory=command.cwd if command else None,
        problem=problem,
    )


def attempts(shared: SharedView, trial_id: Id) -> AttemptsAnswer:
    """Returns the executions of the trial's script, in order."""
    return AttemptsAnswer(attempt_rows(shared.home.trial(trial_id)))
