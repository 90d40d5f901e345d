"""The records of a home as tables of DuckDB, in memory. Whatever a query does, it reaches neither a record nor a file.

A table is filled if the query names it. DuckDB reads points where they are, in NumPy's arrays.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.records import strict_json
from core_sdk._home import Home
from core_sdk._home.fields import FieldKind, declared
from core_sdk._home.finding.facts import flat_hparams
from core_sdk._home.index import Index
from core_sdk._home.rows import CheckpointRow, ExperimentRow, TrialRow
from core_sdk.errors import CoreSDKError, MissingDependencyError

if any(importlib.util.find_spec(name) is None for name in ("duckdb", "numpy")):
    raise MissingDependencyError("DuckDB", extra="sql", purpose="a query over the records")

import duckdb
import numpy as np

_TYPES: dict[FieldKind, str] = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "time": "TIMESTAMP",
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "texts": "VARCHAR[]",
    "structure": "JSON",
}


ROWS: dict[str, type] = {"experiments": ExperimentRow, "trials": TrialRow, "checkpoints": CheckpointRow}
"""The tables that have a column for each field of a row."""

TABLES = {
    **{
        table: ", ".join(f"{field.name} {_TYPES[field.kind]}" for field in declared(row)) for table, row in ROWS.items()
    },
    "hparams": "trial_id BIGINT, name VARCHAR, value VARCHAR, number DOUBLE",
    "metrics": "trial_id BIGINT, attempt BIGINT, rank VARCHAR, group_name VARCHAR, name VARCHAR, "
    "steps_completed BIGINT, time TIMESTAMP, value DOUBLE",
}
"""The tables with the names and types of their columns. Times are UTC."""
_SERIES = "series_id BIGINT, trial_id BIGINT, attempt BIGINT, rank VARCHAR, group_name VARCHAR, name VARCHAR"
_POINTS: dict[str, type[np.int64] | type[np.float64]] = {
    "series_id": np.int64,
    "steps_completed": np.int64,
    "seconds": np.float64,
    "value": np.float64,
}
_METRICS = """CREATE VIEW metrics AS SELECT trial_id, attempt, rank, group_name, name, steps_completed,
    make_timestamp(CAST(seconds * 1e6 AS BIGINT)) AS time, value FROM _points JOIN _series USING (series_id)"""
_NUM_IN_MEMORY = 100_000_000
_FLOAT = np.dtype([("tag", np.uint8), ("number", ">f8")])


@contextlib.contextmanager
def query(home: Home, sql: str) -> Iterator[tuple[list[str], Iterator[Sequence[Any]]]]:
    """Gives the names of the columns and the rows of the query's result. Raises `CoreSDKError` for a wrong query."""
    named = [table for table in TABLES if re.search(rf"\b{table}\b", sql, re.IGNORECASE)]
    with opened(home, named) as database:
        database.execute("SET enable_external_access = false")
        database.execute("SET lock_configuration = true")
        try:
            cursor = database.execute(sql)
            columns = [column[0] for column in cursor.description or ()]
            yield columns, iter(cursor.fetchone, None)
        except duckdb.Error as error:
            raise CoreSDKError(f"the query failed: {_first_words(error)}") from error


def export_parquet(home: Home, directory: Path) -> list[Path]:
    """Writes each table into a Parquet file of its name, in place of an earlier one. Raises `OSError`."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{table}.parquet" for table in TABLES]
    with opened(home, TABLES) as database:
        for table, path in zip(TABLES, paths, strict=True):
            unfinished = path.with_name(f".{path.name}.tmp")
            try:
                database.execute(f"COPY {table} TO '{_quoted(unfinished)}' (FORMAT parquet)")
            except duckdb.Error as error:
                raise CoreSDKError(f"{path} cannot be written: {_first_words(error)}") from error
            unfinished.rename(path)
    return paths


@contextlib.contextmanager
def opened(home: Home, tables: Iterable[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a database with all tables, of which these are filled."""
    with tempfile.TemporaryDirectory() as spilled, Index(home) as index:
        index.refresh()
        with duckdb.connect(":memory:") as database:
            database.execute("SET python_enable_replacements = false")
            database.execute(f"SET temp_directory = '{_quoted(spilled)}'")
            for table, columns in TABLES.items():
                if table != "metrics":
                    database.execute(f"CREATE TABLE {table} ({columns})")
            database.execute(f"CREATE TABLE _series ({_SERIES})")
            database.register("_points", {name: np.empty(0, kind) for name, kind in _POINTS.items()})
            database.execute(_METRICS)
            for table in tables:
                if table in ROWS:
                    _insert(database, table, TABLES[table], getattr(index, table)())
                else:
                    _FILL[table](database, index)
            yield database


def _first_words(error: duckdb.Error) -> str:
    """Returns what an error says, without the text of the query below it."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())


def _quoted(path: Path | str) -> str:
    return str(path).replace("'", "''")


def _fill_hparams(database: duckdb.DuckDBPyConnection, index: Index) -> None:
    rows = [
        {
            "trial_id": trial.trial_id,
            "name": name,
            "value": value if isinstance(value, str) else strict_json(value),
            "number": value if isinstance(value, (int, float)) and not isinstance(value, bool) else None,
        }
        for trial in index.trials()
        for name, value in flat_hparams(trial.hparams).items()
    ]
    _insert(database, "hparams", TABLES["hparams"], rows)


def _fill_metrics(database: duckdb.DuckDBPyConnection, index: Index) -> None:
    series = [{"group_name": each.group, **each._asdict(), "rank": str(each.rank)} for each in index.shown_series()]
    _insert(database, "_series", _SERIES, series)
    num_points, end = index.count_shown_points(), 0
    points = {name: _column(kind, num_points) for name, kind in _POINTS.items()}
    for block in index.shown_columns():
        begin, end = end, end + len(block.steps) // 8
        if end > num_points:  # more were reported meanwhile
            end = begin
            break
        points["series_id"][begin:end] = block.series_id
        points["steps_completed"][begin:end] = np.frombuffer(block.steps, np.int64)
        points["seconds"][begin:end] = np.frombuffer(block.times, np.float64)
        points["value"][begin:end] = _numbers(block.values, end - begin)
    database.register("_points", {name: column[:end] for name, column in points.items()})


def _column(kind: type[np.int64] | type[np.float64], size: int) -> np.ndarray[Any, Any]:
    """Returns an array for a value of each point. A large one is a file, so that it need not fit into memory."""
    if size <= _NUM_IN_MEMORY:
        return np.empty(size, kind)
    with tempfile.TemporaryFile() as file:
        return np.asarray(np.memmap(file, kind, "w+", shape=(size,)))


def _numbers(packed: bytes, count: int) -> np.ndarray[Any, Any]:
    """Returns the numbers of a list in MessagePack, where a float is a byte, 0xcb, and eight bytes behind the head."""
    head_bytes = 1 if count < 16 else 3
    if len(packed) == head_bytes + count * _FLOAT.itemsize:
        items = np.frombuffer(packed, _FLOAT, count, head_bytes)
        if (items["tag"] == 0xCB).all():
            return np.asarray(items["number"])
    return np.array(msgspec.msgpack.decode(packed), np.float64)


_FILL: dict[str, Callable[[duckdb.DuckDBPyConnection, Index], None]] = {
    "hparams": _fill_hparams,
    "metrics": _fill_metrics,
}


def _insert(database: duckdb.DuckDBPyConnection, table: str, columns: str, rows: Iterable[Any]) -> None:
    """Inserts rows, whose fields are found by the names of the columns."""
    types = dict(column.split(" ") for column in columns.split(", "))
    found = [{name: row[name] if isinstance(row, dict) else getattr(row, name) for name in types} for row in rows]
    in_json = {name: "DOUBLE" if kind == "TIMESTAMP" else kind for name, kind in types.items()}
    structure = [{name: ["VARCHAR"] if kind == "VARCHAR[]" else kind for name, kind in in_json.items()}]
    chosen = ", ".join(
        f"make_timestamp(CAST(r.{name} * 1e6 AS BIGINT))" if kind == "TIMESTAMP" else f"r.{name}"
        for name, kind in types.items()
    )
    database.execute(
        f"INSERT INTO {table} SELECT {chosen} FROM (SELECT unnest(from_json(?, ?)) AS r)",
        [strict_json(found), msgspec.json.encode(structure).decode()],
    )
