"""trackio's runs: a database for each project, and fragments that have not come into one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._analysis.exchange.run import ForeignRun, Row, flat
from core_sdk._analysis.exchange.sqlite_files import opened_database
from core_sdk._analysis.exchange.trackio_inbox import FragmentedRun, fragmented_runs, fragments_beside

_NUMBERS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def database_runs(path: Path) -> Iterator[ForeignRun]:
    """Yields the runs of a project, in the order in which they began, also by the fragments beside its database."""
    project = path.stem
    beside = {run.run_id: run for run in fragmented_runs(fragments_beside(path)) if run.project == project}
    with opened_database(path) as database:
        columns = {row["name"] for row in database.execute("PRAGMA table_info(metrics)")}
        run_id = "run_id" if "run_id" in columns else "run_name"  # older versions know runs by name
        query = f"SELECT {run_id} AS run_id, run_name FROM metrics GROUP BY {run_id} ORDER BY min(id)"
        for each in database.execute(query).fetchall():
            run = _run(project, each["run_id"], each["run_name"], str(path))
            _keep_config(run, _stored_config(run, database, run_id, each["run_id"]))
            run.rows = _rows(run, database, run_id, each["run_id"])
            if (rest := beside.pop(each["run_id"], None)) is not None:
                run.losses += rest.losses
                run.rows = chain(run.rows, _fragment_rows(run, rest, database if "log_id" in columns else None))
            yield run
    yield from map(_run_of_fragments, beside.values())


def inbox_runs(files: Iterable[Path], projects_elsewhere: Iterable[str]) -> Iterator[ForeignRun]:
    """Yields the runs of these fragments, but for projects whose databases are read by themselves."""
    left_out = set(projects_elsewhere)
    return map(_run_of_fragments, (run for run in fragmented_runs(files) if run.project not in left_out))


def _run(project: str, run_id: str, name: str, where: str) -> ForeignRun:
    return ForeignRun(key=f"trackio:{project}/{run_id}", where=f"{where}, run {name}", experiment=project, name=name)


def _run_of_fragments(found: FragmentedRun) -> ForeignRun:
    run = _run(found.project, found.run_id, found.name, str(found.files[0][1].parent))
    run.losses += found.losses
    _keep_config(run, found.config)
    run.rows = _fragment_rows(run, found, None)
    return run


def _stored_config(run: ForeignRun, database: sqlite3.Connection, column: str, run_id: str) -> Mapping[str, Any]:
    try:
        found = database.execute(f"SELECT config FROM configs WHERE {column} = ?", (run_id,)).fetchone()
        config = msgspec.json.decode(found["config"]) if found is not None else {}
        if isinstance(config, dict):
            return config
        run.losses.append("its configuration cannot be read: it is no mapping")
    except (sqlite3.DatabaseError, ValueError, TypeError, RecursionError) as error:
        run.losses.append(f"its configuration cannot be read: {error}")
    return {}


def _keep_config(run: ForeignRun, config: Mapping[str, Any]) -> None:
    run.hparams = {name: value for name, value in config.items() if not name.startswith("_")}
    run.created = _time(config.get("_Created"))
    run.labels = [f"group={config['_Group']}"] if config.get("_Group") else []
    if user := config.get("_Username"):
        run.metadata["trackio.user"] = user


def _rows(run: ForeignRun, database: sqlite3.Connection, column: str, run_id: str) -> Iterator[Row]:
    query = f"SELECT timestamp, step, metrics FROM metrics WHERE {column} = ? ORDER BY id"
    num_damaged = 0
    try:
        for timestamp, step, metrics in database.execute(query, (run_id,)):
            try:
                row = _row(timestamp, step, msgspec.json.decode(metrics))
            except (ValueError, TypeError, RecursionError):
                row = None
            if row is None:
                num_damaged += 1
            else:
                yield row
    except sqlite3.DatabaseError as error:
        run.losses.append(f"its metrics were not read to their end: {error}")
    _lose_rows(run, num_damaged)


def _fragment_rows(run: ForeignRun, found: FragmentedRun, database: sqlite3.Connection | None) -> Iterator[Row]:
    """Yields the rows of fragments that have not come into the database. A row without a step has the next one."""
    num_damaged, next_step = 0, 0
    for record in found.records():
        step = record.get("step")
        step = next_step if step is None else step
        try:
            row = _row(record.get("timestamp"), step, record.get("metrics"))
        except (ValueError, TypeError, RecursionError):
            row = None
        if row is None:
            num_damaged += 1
            continue
        next_step = row[1] + 1
        if database is None or not _has(database, record.get("log_id")):
            yield row
    _lose_rows(run, num_damaged)


def _has(database: sqlite3.Connection, log_id: object) -> bool:
    found = database.execute("SELECT 1 FROM metrics WHERE log_id = ?", (str(log_id),)).fetchone()
    return log_id is not None and found is not None


def _row(timestamp: object, step: object, metrics: object) -> Row | None:
    """Returns a row; None if it has no time, no step or no metrics. May raise `RecursionError`."""
    if (at := _time(timestamp)) is None or not isinstance(step, int) or not isinstance(metrics, dict):
        return None
    return at, step, {name: _number(value) for name, value in flat(metrics)}


def _lose_rows(run: ForeignRun, num_damaged: int) -> None:
    if num_damaged:
        run.losses.append(f"{num_damaged} rows are damaged, and were left out")


def _number(value: Any) -> Any:
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None
