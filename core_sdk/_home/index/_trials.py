"""Answers questions about experiments and trials from the index."""

from __future__ import annotations

import sqlite3
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from core_sdk._ground.alive import is_alive
from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.masking import masked_text, masked_values
from core_sdk._ground.records import (
    CodeRecord,
    EnvironmentRecord,
    ExperimentRecord,
    Settled,
    StallFound,
    from_json,
    generated_name,
)
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.index._blocks import unpack_steps, unpack_times
from core_sdk._home.index._checkpoints import latest_checkpoints
from core_sdk._home.index._schema import OF_EXPERIMENT, Where
from core_sdk._home.rows import (
    AlertRow,
    ExperimentRow,
    Marks,
    RankRow,
    TimeRow,
    TrialRow,
    TrialState,
    WhichTrials,
    WriterRow,
    WriterState,
)
from core_sdk._home.states import (
    GOES_ON,
    WAITS_FOR_SLOTS,
    WAITS_IN_SLURM,
    AttemptEnd,
    experiment_state,
    gap_of_end,
    trial_state,
    with_losses,
)
from core_sdk._home.superseding import EVERYTHING
from core_sdk._home.time_spent import AttemptClock, AttemptSpan, Gap, TimeMark, milliseconds, trial_time

AttemptKey = tuple[int, int]
"""Trial id and attempt."""

_decode_clock = json_decoder(AttemptClock)
_decode_gaps = json_decoder(dict[str, Gap])
# The outcomes of a script that has stopped where it wanted to.
_ORDERLY = ("completed", "paused", "exited")


def open_attempts(connection: sqlite3.Connection, where: Where) -> list[AttemptKey]:
    """Returns the newest attempt of each trial whose newest attempt has not recorded its end."""
    query = f"""SELECT trial_id, attempt.attempt FROM attempt JOIN trial USING (trial_id)
        WHERE outcome IS NULL AND attempt.attempt > 0 AND rank = 0 AND {where.sql} AND NOT EXISTS (
            SELECT 1 FROM attempt AS later WHERE later.trial_id = attempt.trial_id AND later.attempt > attempt.attempt
        )"""
    return [(trial_id, number) for trial_id, number in connection.execute(query, where.values)]


# Whether a trial was archived, and no newer attempt has begun since.
_IS_ARCHIVED = """EXISTS (
    SELECT 1 FROM attempt AS changes WHERE changes.trial_id = trial.trial_id AND changes.attempt = 0
    AND archived_attempt >= (SELECT max(attempt) FROM attempt WHERE attempt.trial_id = trial.trial_id AND rank = 0)
)"""
_WAITS = """EXISTS (
    SELECT 1 FROM attempt JOIN json_each(?) ON json_extract(settled, '$.reason') LIKE value || '%'
    WHERE attempt.trial_id = trial.trial_id AND attempt.attempt = 0
)"""
_WAITING = msgspec.json.encode((WAITS_IN_SLURM, WAITS_FOR_SLOTS, GOES_ON)).decode()
_WHICH: Mapping[WhichTrials, Where] = {
    "all": Where(),
    "listed": Where(f"NOT {_IS_ARCHIVED}"),
    "waiting": Where(_WAITS, (_WAITING,)),
}

IS_LISTED = "experiment_id IN (SELECT experiment_id FROM trial) OR has_search"


def in_experiments(where: Where) -> Where:
    """Returns a condition for the trials of the experiments for which this condition holds."""
    return Where(f"experiment_id IN (SELECT experiment_id FROM experiment WHERE {where.sql})", where.values)


def read_marks(connection: sqlite3.Connection) -> Marks:
    trials = "SELECT trial_id, mark FROM trial ORDER BY trial_id"
    experiments = f"SELECT experiment_id, signature FROM experiment WHERE {IS_LISTED}"
    return Marks(*(dict(connection.execute(query).fetchall()) for query in (trials, experiments)))


def read_trials(
    connection: sqlite3.Connection, home: Home, where: Where, is_running: Mapping[AttemptKey, bool]
) -> list[TrialRow]:
    """Reads the rows of trials. `is_running` has the open attempts; an attempt that it lacks has just begun."""
    query = f"""SELECT trial.*, experiment.name AS experiment_name, experiment.recorded AS of_experiment,
            {_IS_ARCHIVED} AS is_archived
        FROM trial LEFT JOIN experiment USING (experiment_id) WHERE {where.sql} ORDER BY trial_id"""
    attempts, latest = _attempts(connection, where), latest_checkpoints(connection, home, where)
    return [
        _trial_row(row, home, attempts[row["trial_id"]], is_running, latest)
        for row in connection.execute(query, where.values)
    ]


def read_ids(connection: sqlite3.Connection, of: Where, which: WhichTrials) -> list[int]:
    chosen = _WHICH[which]
    query = f"SELECT trial_id FROM trial WHERE {of.sql} AND {chosen.sql} ORDER BY trial_id"
    return [trial_id for (trial_id,) in connection.execute(query, of.values + chosen.values)]


def read_alerts(connection: sqlite3.Connection, trial_id: int) -> list[AlertRow]:
    """Reads the alerts of a trial, in the order in which they were made."""
    query = """SELECT attempt.attempt, steps, time, title, description, level, ifnull(steps > kept_until, FALSE)
        FROM alert JOIN attempt ON attempt.id = attempt_id WHERE trial_id = ? ORDER BY attempt.attempt, alert.rowid"""
    found = connection.execute(query, (trial_id,))
    return [
        AlertRow(trial_id, attempt, steps, time, title, description, level, bool(is_superseded))
        for attempt, steps, time, title, description, level, is_superseded in found
    ]


def read_starts(connection: sqlite3.Connection, trial_id: int) -> list[tuple[int, float]]:
    """Reads the attempts of a trial, with the times at which they began, in order."""
    query = """SELECT attempt, started FROM attempt WHERE trial_id = ? AND rank = 0 AND attempt > 0
        AND started IS NOT NULL ORDER BY attempt"""
    return [(attempt, started) for attempt, started in connection.execute(query, (trial_id,))]


def read_experiments(
    connection: sqlite3.Connection, where: Where, is_running: Mapping[AttemptKey, bool]
) -> list[ExperimentRow]:
    states = defaultdict(list)
    in_experiment = in_experiments(where)
    attempts = _attempts(connection, in_experiment)
    trials = f"SELECT trial_id, experiment_id FROM trial WHERE {in_experiment.sql}"
    for trial_id, experiment_id in connection.execute(trials, in_experiment.values):
        states[experiment_id].append(_state(trial_id, attempts[trial_id], is_running)[0])
    query = f"SELECT * FROM experiment WHERE {where.sql} ORDER BY experiment_id"
    return [_experiment_row(row, states[row["experiment_id"]]) for row in connection.execute(query, where.values)]


def _attempts(connection: sqlite3.Connection, where: Where) -> defaultdict[int, list[sqlite3.Row]]:
    """Returns the rows of `attempt` by trial, the newest attempt first, and then by rank."""
    query = f"""SELECT attempt.* FROM attempt JOIN trial USING (trial_id) WHERE {where.sql}
        ORDER BY attempt.attempt DESC, rank"""
    attempts = defaultdict(list)
    for row in connection.execute(query, where.values):
        attempts[row["trial_id"]].append(row)
    return attempts


def _of_chief(attempts: Sequence[sqlite3.Row]) -> list[sqlite3.Row]:
    return [row for row in attempts if row["rank"] == 0]


def _trial_row(
    row: sqlite3.Row,
    home: Home,
    attempts: Sequence[sqlite3.Row],
    is_running: Mapping[AttemptKey, bool],
    latest: Mapping[int, str],
) -> TrialRow:
    chief = _of_chief(attempts)
    state, reason = _state(row["trial_id"], attempts, is_running)
    if _is_queued(state, reason, row["of_experiment"]):
        state = "QUEUED"
    num_dropped = sum(found["num_dropped"] for found in attempts)
    environment = _newest(chief, "environment")
    told = msgspec.json.decode(row["recorded"]) | {"trial_id": row["trial_id"]}  # the folder may be a copy
    for attempt in reversed(chief):
        told |= msgspec.json.decode(attempt["told"])
    told["name"] = told["name"] or generated_name(told["trial_id"], told["created"])
    told["labels"] = _labels(told["labels"], chief)
    told |= {name: from_json(told[name]) for name in ("hparams", "metadata") if name in told}
    told["code"] = None if told["code"] is None else CodeRecord(**told["code"])
    return TrialRow(
        **told | {"hparams": masked_values(told["hparams"])},
        experiment_name=row["experiment_name"] or "",
        state=state,
        reason=with_losses(masked_text(reason), num_dropped, _newest(attempts, "drop_reason") or ""),
        ended=None if state in ("ACTIVE", "QUEUED") or not chief else _ended(chief[0]),
        host=_newest(chief, "host") or "",
        num_attempts=row["num_attempts"],
        steps_completed=row["steps_completed"],
        latest_checkpoint=latest.get(row["trial_id"]),
        num_dropped=num_dropped,
        num_bad_lines=sum(found["num_bad_lines"] for found in attempts),
        ranks=_ranks(attempts),
        writers=_writers(home, attempts),
        is_archived=bool(row["is_archived"]),
        environment=None if environment is None else json_decoder(EnvironmentRecord)(environment),
    )


def _is_queued(state: TrialState, reason: str, experiment: str | None) -> bool:
    """Returns whether a trial waits for its next attempt. `experiment` is the record of its experiment."""
    return state == "QUEUED" or (state == "PAUSED" and reason.startswith(GOES_ON) and _is_active(experiment))


def _is_active(experiment: str | None) -> bool:
    search = None if experiment is None else json_decoder(ExperimentRecord)(experiment).search
    return search is not None and search.state == "ACTIVE"


def _ranks(attempts: Sequence[sqlite3.Row]) -> tuple[RankRow, ...]:
    ranks = [row for row in attempts if isinstance(row["rank"], int) and row["attempt"] == attempts[0]["attempt"]]
    rows = ranks if len(ranks) > 1 else []
    return tuple(
        RankRow(row["rank"], row["host"] or "", msgspec.json.decode(row["told"]).get("progress")) for row in rows
    )


def _writers(home: Home, attempts: Sequence[sqlite3.Row]) -> tuple[WriterRow, ...]:
    """Returns the writers of a trial, each as the process has left it that began last."""
    newest: dict[str, sqlite3.Row] = {}
    for row in attempts:
        if isinstance(name := row["rank"], str) and (row["started"] or 0) >= (
            newest[name]["started"] or 0 if name in newest else 0
        ):
            newest[name] = row
    return tuple(_writer_row(home.folder(row["trial_id"]), name, row) for name, row in sorted(newest.items()))


def _writer_row(folder: TrialFolder, name: str, row: sqlite3.Row) -> WriterRow:
    has_told_end = row["outcome"] is not None
    lives_here = not has_told_end and is_alive(folder.writer_path(name))
    state: WriterState
    if row["is_spooled"] and not has_told_end and not lives_here:  # its lock is on its node
        state, reason = "UNKNOWN", "its node does not see this home"
    else:
        end = _end_told(row, row["num_dropped"])
        state, reason = trial_state(end, lives_here)
    return WriterRow(name, row["host"] or "", state, reason, row["started"] or 0.0, row["last_time"] or 0.0)


def _labels(first: Sequence[str], chief: Sequence[sqlite3.Row]) -> tuple[str, ...]:
    """Returns the labels that the trial began with, with all later changes."""
    if (told := _newest(chief, "label_changes")) is None:
        return tuple(dict.fromkeys(first))
    changes = msgspec.json.decode(told)
    labels = dict.fromkeys([*first, *changes])
    return tuple(label for label in labels if changes.get(label, True))


class _IndexedExperiment(ExperimentRecord, kw_only=True):
    """The record of an experiment, and what its folder's `origin` has told."""

    owner: str = ""
    home: str = ""


def _experiment_row(row: sqlite3.Row, states: Sequence[TrialState]) -> ExperimentRow:
    record = json_decoder(_IndexedExperiment)(row["recorded"])
    told = {name: getattr(record, name) for name in (*OF_EXPERIMENT, "owner", "home")}
    told |= {"experiment_id": row["experiment_id"], "labels": tuple(record.labels)}
    state = experiment_state(set(states)) if record.search is None else record.search.state
    return ExperimentRow(**told, num_trials=len(states), state=state)


def _end_told(row: sqlite3.Row, num_dropped: int = 0) -> AttemptEnd:
    return AttemptEnd(
        row["outcome"], row["error"], row["stop_source"], row["exit_code"], row["exit_problem"], num_dropped
    )


def _state(
    trial_id: int, of_ranks: Sequence[sqlite3.Row], is_running: Mapping[AttemptKey, bool]
) -> tuple[TrialState, str]:
    attempts = _of_chief(of_ranks)
    newest = attempts[0]["attempt"] if attempts else 0
    told = attempts[-1]["settled"] if attempts else None
    settled = None if told is None else json_decoder(Settled)(told)
    if settled is not None and settled.attempt < newest:
        settled = None  # it was settled before this attempt
    if newest == 0 and settled is None:
        return "ERROR", "no attempt has begun"
    num_dropped = sum(row["num_dropped"] for row in of_ranks if row["attempt"] == newest)
    end = _end_told(attempts[0], num_dropped)
    state, reason = trial_state(end, is_running.get((trial_id, newest), True), settled)
    return (state, _stall(attempts[-1]["stall"], newest)) if state == "ACTIVE" else (state, reason)


def _stall(told: str | None, newest: int) -> str:
    """Returns what stands still in the newest attempt; empty if nothing does."""
    found = None if told is None else json_decoder(StallFound)(told)
    return "" if found is None or found.is_over or found.attempt < newest else f"stalled: {found.words}"


def _newest(attempts: Sequence[sqlite3.Row], column: str) -> Any:
    """Returns the column's value of the newest attempt that has one, or None."""
    return next((row[column] for row in attempts if row[column] is not None), None)


def _ended(newest: sqlite3.Row) -> float | None:
    """Returns the recorded end, or else the time of the last record, or None."""
    times = (newest["ended"], newest["exit_time"], newest["last_time"])
    return next((time for time in times if time is not None), None)


def read_times(connection: sqlite3.Connection, where: Where, is_running: Mapping[AttemptKey, bool]) -> list[TimeRow]:
    """Reads where the time of trials went, up to now of those that run or wait for their next attempt.

    Ten thousand trials are to be answered within a second: all is asked for at once, and only what is needed.
    """
    query = f"""SELECT trial_id, attempt.attempt, attempt.id, clock, gaps, settled, kept_until, exit_time,
            outcome, error, stop_source, exit_code, exit_problem
        FROM attempt JOIN trial USING (trial_id) WHERE rank = 0 AND {where.sql} ORDER BY trial_id, attempt.attempt"""
    attempts = defaultdict(list)
    for row in connection.execute(query, where.values):
        attempts[row["trial_id"]].append(row)
    query = f"""SELECT attempt.id, at, loading, validating, saving FROM attempt JOIN trial USING (trial_id)
        JOIN mark ON mark.rowid = (SELECT max(rowid) FROM mark WHERE attempt_id = attempt.id AND steps <= kept_until)
        WHERE kept_until < {EVERYTHING} AND {where.sql}"""
    marks = {attempt_id: TimeMark(*mark) for attempt_id, *mark in connection.execute(query, where.values)}
    query = f"""SELECT trial_id, trial.experiment_id, json_extract(trial.recorded, '$.created') AS created,
            experiment.recorded AS of_experiment
        FROM trial LEFT JOIN experiment USING (experiment_id) WHERE {where.sql} ORDER BY trial_id"""
    now = milliseconds(time.time())
    return [
        _time_row(connection, row, attempts[row["trial_id"]], marks, is_running, now)
        for row in connection.execute(query, where.values)
    ]


def _time_row(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    of_chief: Sequence[sqlite3.Row],
    marks: Mapping[int, TimeMark],
    is_running: Mapping[AttemptKey, bool],
    now: int,
) -> TimeRow:
    newest = of_chief[-1]["attempt"] if of_chief else 0
    told = of_chief[0]["settled"] if of_chief else None
    settled = None if told is None else json_decoder(Settled)(told)
    if settled is not None and settled.attempt < newest:
        settled = None
    gaps = _decode_gaps(of_chief[0]["gaps"]) if of_chief and of_chief[0]["gaps"] else {}
    clocks, spans, num_failures = [], [], 0
    for each in of_chief:
        if (number := each["attempt"]) == 0:
            continue
        clock = AttemptClock() if each["clock"] is None else _decode_clock(each["clock"])
        is_newest = number == newest and settled is None
        runs = is_newest and each["outcome"] is None and is_running.get((row["trial_id"], number), True)
        gap = gaps.get(str(number)) or gap_of_end(_end_told(each))
        if runs:
            clock.pass_to(now)
        elif each["exit_time"] is not None:
            clock.pass_to(milliseconds(each["exit_time"]))
        clocks.append(clock)
        spans.append(_span(connection, each, clock, gap, marks))
        num_failures += gap == "down" and not runs and clock.work > 0
    waits = settled is not None and _is_queued(*trial_state(AttemptEnd(), False, settled), row["of_experiment"])
    return TimeRow(
        trial_id=row["trial_id"],
        experiment_id=row["experiment_id"],
        time=trial_time(milliseconds(row["created"]), spans, now if waits else None),
        num_attempts=len(spans),
        num_failures=num_failures,
        attempts_ms=sum([clock.starting + clock.work for clock in clocks]),
        work_ms=sum([clock.work for clock in clocks]),
        saving_ms=sum([clock.saving for clock in clocks]),
        num_saves=sum([clock.num_saves for clock in clocks]),
        num_checkpoints=sum([clock.num_checkpoints for clock in clocks]),
    )


def _span(
    connection: sqlite3.Connection, row: sqlite3.Row, clock: AttemptClock, gap: Gap, marks: Mapping[int, TimeMark]
) -> AttemptSpan:
    kept_until = EVERYTHING if row["kept_until"] is None else row["kept_until"]
    if kept_until == EVERYTHING or (row["outcome"] in _ORDERLY and clock.last_steps <= kept_until):
        return AttemptSpan(clock, gap)
    kept = marks.get(row["id"]) or _reported(connection, row["id"], clock, kept_until)
    return AttemptSpan(clock, gap, is_lost=True, kept=kept)


def _reported(connection: sqlite3.Connection, attempt_id: int, clock: AttemptClock, kept_until: int) -> TimeMark | None:
    """Returns the mark of the last report that counts, for a script that has checkpoints of its own."""
    if kept_until <= clock.resumed_steps:
        return None
    query = """SELECT steps, times FROM series JOIN block ON block.series_id = series.id
        WHERE attempt_id = ? AND NOT is_profile AND first_steps <= ? ORDER BY first_steps DESC LIMIT 1"""
    if (block := connection.execute(query, (attempt_id, kept_until)).fetchone()) is None:
        return None
    last = unpack_times(block["times"])[bisect_right(unpack_steps(block["steps"]), kept_until) - 1]
    return TimeMark(milliseconds(last), clock.loading, clock.validating, clock.saving)
