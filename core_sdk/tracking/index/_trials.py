"""Questions about experiments and trials."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from core_sdk.records import from_json
from core_sdk.tracking.index._schema import attempt, experiment, trial
from core_sdk.tracking.rows import ExperimentRow, RankRow, TrialRow, TrialState
from core_sdk.tracking.states import AttemptEnd, experiment_state, trial_state

AttemptKey = tuple[int, int]
"""Trial id and attempt."""

_is_chief = attempt.c.rank == 0


def open_attempts(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[AttemptKey]:
    """Newest attempts of trials that have not said how they ended."""
    newest = (
        sa.select(attempt.c.trial_id, sa.func.max(attempt.c.attempt).label("newest"))
        .where(attempt.c.attempt > 0, _is_chief)
        .group_by(attempt.c.trial_id)
        .subquery()
    )
    is_newest = sa.and_(attempt.c.trial_id == newest.c.trial_id, attempt.c.attempt == newest.c.newest)
    query = (
        sa.select(attempt.c.trial_id, attempt.c.attempt)
        .join(newest, is_newest)
        .join(trial, trial.c.trial_id == attempt.c.trial_id)
        .where(where, attempt.c.outcome.is_(None), _is_chief)
    )
    return [(row.trial_id, row.attempt) for row in connection.execute(query)]


def read_trials(
    connection: sa.Connection,
    where: sa.ColumnElement[bool],
    is_running: Mapping[AttemptKey, bool],
    latest_checkpoints: Mapping[int, str],
) -> list[TrialRow]:
    """`is_running` tells of the open attempts; one that it does not know has just begun."""
    query = (
        sa.select(trial, experiment.c.name.label("experiment_name"))
        .outerjoin(experiment, experiment.c.experiment_id == trial.c.experiment_id)
        .where(where)
        .order_by(trial.c.trial_id)
    )
    rows = connection.execute(query).all()
    attempts = _attempts(connection, sa.and_(where, _is_chief))
    others = _attempts(connection, sa.and_(where, ~_is_chief))
    return [
        _trial_row(row, attempts[row.trial_id], others[row.trial_id], is_running, latest_checkpoints.get(row.trial_id))
        for row in rows
    ]


def read_experiments(
    connection: sa.Connection, where: sa.ColumnElement[bool], is_running: Mapping[AttemptKey, bool]
) -> list[ExperimentRow]:
    states = defaultdict(list)
    in_experiment = trial.c.experiment_id.in_(sa.select(experiment.c.experiment_id).where(where))
    attempts = _attempts(connection, sa.and_(in_experiment, _is_chief))
    for row in connection.execute(sa.select(trial.c.trial_id, trial.c.experiment_id).where(in_experiment)):
        state, _ = _state(row.trial_id, attempts[row.trial_id], is_running)
        states[row.experiment_id].append(state)
    query = sa.select(experiment).where(where).order_by(experiment.c.experiment_id)
    return [_experiment_row(row, states[row.experiment_id]) for row in connection.execute(query)]


def _attempts(connection: sa.Connection, where: sa.ColumnElement[bool]) -> defaultdict[int, list[Any]]:
    """The rows of `attempt` by trial, newest first, and then by rank."""
    query = sa.select(attempt).join(trial, trial.c.trial_id == attempt.c.trial_id).where(where)
    attempts = defaultdict(list)
    for row in connection.execute(query.order_by(attempt.c.attempt.desc(), attempt.c.rank)):
        attempts[row.trial_id].append(row)
    return attempts


def _trial_row(
    row: Any,
    attempts: Sequence[Any],
    others: Sequence[Any],
    is_running: Mapping[AttemptKey, bool],
    latest_checkpoint: str | None,
) -> TrialRow:
    """`attempts` are the chief's, `others` those of the other ranks."""
    state, reason = _state(row.trial_id, attempts, is_running)
    metadata = _newest(attempts, "metadata")
    return TrialRow(
        trial_id=row.trial_id,
        experiment_id=row.experiment_id,
        experiment_name=row.experiment_name or "",
        state=state,
        reason=reason,
        hparams=from_json(msgspec.json.decode(row.hparams)),
        created=row.created,
        ended=None if state == "ACTIVE" or not attempts else _ended(attempts[0]),
        num_attempts=row.num_attempts,
        steps_completed=row.steps_completed,
        progress=_newest(attempts, "progress"),
        status=_newest(attempts, "status") or "",
        metadata=None if metadata is None else from_json(msgspec.json.decode(metadata)),
        latest_checkpoint=latest_checkpoint,
        continued_from=row.continued_from,
        num_dropped=sum(found.num_dropped for found in (*attempts, *others)),
        num_bad_lines=sum(found.num_bad_lines for found in (*attempts, *others)),
        ranks=_ranks(attempts, others),
    )


def _ranks(attempts: Sequence[Any], others: Sequence[Any]) -> tuple[RankRow, ...]:
    others = [row for row in others if row.attempt == attempts[0].attempt]
    rows = [attempts[0], *others] if others else []
    return tuple(RankRow(row.rank, row.host or "", row.progress) for row in rows)


def _experiment_row(row: Any, states: Sequence[TrialState]) -> ExperimentRow:
    return ExperimentRow(
        experiment_id=row.experiment_id,
        name=row.name,
        created=row.created,
        labels=tuple(msgspec.json.decode(row.labels)),
        description=row.description,
        num_trials=len(states),
        state=experiment_state(set(states)),
    )


def _state(trial_id: int, attempts: Sequence[Any], is_running: Mapping[AttemptKey, bool]) -> tuple[TrialState, str]:
    if not attempts or attempts[0].attempt == 0:
        return "ERROR", "no attempt has begun"
    newest = attempts[0]
    end = AttemptEnd(newest.outcome, newest.error, newest.stop_source, newest.exit_code, newest.exit_problem)
    return trial_state(end, is_running.get((trial_id, newest.attempt), True))


def _newest(attempts: Sequence[Any], column: str) -> Any:
    """What the newest attempt that speaks of it says."""
    return next((value for row in attempts if (value := getattr(row, column)) is not None), None)


def _ended(newest: Any) -> float | None:
    """Without a last word, the time of the last one."""
    times = (newest.ended, newest.exit_time, newest.last_time)
    return next((time for time in times if time is not None), None)
