"""trackio's databases, one for each project."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._analysis.exchange.run import ForeignRun, Row, flat
from core_sdk._analysis.exchange.sqlite_files import opened_database

_NUMBERS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def database_runs(path: Path) -> Iterator[ForeignRun]:
    """Yields the runs of a project, in the order in which they began."""
    with opened_database(path) as database:
        columns = {row["name"] for row in database.execute("PRAGMA table_info(metrics)")}
        run_id = "run_id" if "run_id" in columns else "run_name"  # older versions know runs by name
        query = f"SELECT {run_id} AS run_id, run_name FROM metrics GROUP BY {run_id} ORDER BY min(id)"
        for each in database.execute(query).fetchall():
            name, project = each["run_name"], path.stem
            run = ForeignRun(
                key=f"trackio:{project}/{each['run_id']}",
                where=f"{path}, run {name}",
                experiment=project,
                name=name,
            )
            _read_config(run, database, run_id, each["run_id"])
            run.rows = _rows(run, database, run_id, each["run_id"])
            yield run


def _read_config(run: ForeignRun, database: sqlite3.Connection, column: str, run_id: str) -> None:
    try:
        found = database.execute(f"SELECT config, created_at FROM configs WHERE {column} = ?", (run_id,)).fetchone()
        config = msgspec.json.decode(found["config"]) if found is not None else {}
    except (sqlite3.DatabaseError, msgspec.DecodeError, ValueError) as error:
        run.losses.append(f"its configuration cannot be read: {error}")
        return
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
                values: Mapping[str, Any] = msgspec.json.decode(metrics)
                at = _time(timestamp)
            except (msgspec.DecodeError, ValueError):
                at = None
            if at is None:
                num_damaged += 1
            else:
                yield at, step, {name: _number(value) for name, value in flat(values)}
    except sqlite3.DatabaseError as error:
        run.losses.append(f"its metrics were not read to their end: {error}")
    if num_damaged:
        run.losses.append(f"{num_damaged} rows are damaged, and were left out")


def _number(value: Any) -> Any:
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
