"""MLflow's runs, in folders such as `mlruns`, or in an SQLite database; not their artifacts and models."""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from math import inf, nan
from pathlib import Path
from typing import Any

import yaml

from core_sdk._analysis.exchange.run import ForeignRun, parsed, rows_of
from core_sdk._analysis.exchange.sqlite_files import opened_database
from core_sdk._ground.files import reading

_BLOCK_BYTES = 1 << 16
_MAX_TEXT_BYTES = 1 << 20
_MAX_META_BYTES = 1 << 16
_STATUSES = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
"""The numbers by which a folder names the status."""
_LARGEST = 1.7976931348623157e308
"""What the database keeps in place of an infinity."""

_Point = tuple[float, int, str, float]


def is_run_folder(path: Path) -> bool:
    return (path / "meta.yaml").is_file() and (path / "metrics").is_dir()


def folder_runs(folders: Iterable[Path]) -> Iterator[ForeignRun]:
    """Yields the runs of these folders. Deleted ones are left out."""
    for folder in folders:
        run = ForeignRun(key=f"mlflow:{folder.name}", where=str(folder), experiment=folder.parent.name)
        experiment, meta = _read_meta(run, folder.parent), _read_meta(run, folder)
        if "deleted" in (meta.get("lifecycle_stage"), experiment.get("lifecycle_stage")):
            continue
        run.key = f"mlflow:{meta.get('run_id') or folder.name}"
        run.experiment = str(experiment.get("name") or run.experiment)
        status = str(meta.get("status"))
        meta["status"] = _STATUSES.get(status, status)
        tags = {name: _read_text(run, file) for name, file in _named_files(folder / "tags")}
        _describe(run, meta, tags)
        run.hparams = {name: parsed(_read_text(run, file)) for name, file in _named_files(folder / "params")}
        curves = [_points_of_file(run, name, file) for name, file in _named_files(folder / "metrics")]
        run.rows = rows_of(heapq.merge(*curves))
        yield run


def _named_files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yields the files of a directory with their names, in which a slash makes a directory. No link is followed."""
    if directory.is_symlink():
        return
    for parent, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            file = Path(parent, name)
            yield file.relative_to(directory).as_posix(), file


def _read_meta(run: ForeignRun, folder: Path) -> dict[str, Any]:
    try:
        meta = yaml.safe_load(_read(folder / "meta.yaml", _MAX_META_BYTES))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        run.losses.append(f"{folder.name}/meta.yaml cannot be read: {' '.join(str(error).split())}")
        return {}
    # An alias may stand for more text than fits into memory.
    return (
        {name: value for name, value in meta.items() if isinstance(value, (str, int, float))}
        if isinstance(meta, dict)
        else {}
    )


def _read_text(run: ForeignRun, file: Path) -> str:
    try:
        return _read(file, _MAX_TEXT_BYTES).decode(errors="replace").removesuffix("\n")
    except OSError as error:
        run.losses.append(f"{file.name} cannot be read: {error.strerror}")
        return ""


def _read(file: Path, max_bytes: int) -> bytes:
    with reading(file) as opened:
        content = opened.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes} bytes", str(file))
    return content


def _points_of_file(run: ForeignRun, name: str, file: Path) -> Iterator[_Point]:
    """Yields the points of a metric. The file is open only while a block is read: there may be thousands."""
    offset, num_bad = 0, 0
    rest = b""
    while True:
        try:
            with reading(file) as opened:
                opened.seek(offset)
                block = opened.read(_BLOCK_BYTES)
        except OSError as error:
            run.losses.append(f"{name} was not read to its end: {error.strerror}")
            break
        offset += len(block)
        *lines, rest = (rest + block if block else rest + b"\n").split(b"\n")
        for line in lines:
            try:
                time_ms, value, *step = line.split()[:3]
                yield int(time_ms) / 1000, int(step[0]) if step else 0, name, float(value)
            except (ValueError, OverflowError):
                num_bad += bool(line)
        if len(rest) > _BLOCK_BYTES:
            run.losses.append(f"{name} was not read to its end: a line is longer than any point")
            break
        if not block:
            break
    if num_bad:
        run.losses.append(f"{num_bad} lines of the metric {name} are damaged, and were left out")


def database_runs(path: Path) -> Iterator[ForeignRun]:
    """Yields the runs of a database, in the order in which they began. Deleted ones are left out."""
    query = """SELECT runs.*, experiments.name AS experiment_name FROM runs JOIN experiments USING (experiment_id)
        WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active' ORDER BY start_time"""
    with opened_database(path) as database:
        for meta in map(dict, database.execute(query).fetchall()):
            run_id = meta["run_uuid"]
            run = ForeignRun(
                key=f"mlflow:{run_id}", where=f"{path}, run {run_id}", experiment=str(meta["experiment_name"])
            )
            _describe(run, {**meta, "run_name": meta["name"]}, _pairs(run, database, "tags", run_id))
            run.hparams = {name: parsed(text) for name, text in _pairs(run, database, "params", run_id).items()}
            run.rows = rows_of(_points_of_database(run, database, run_id))
            yield run


def _pairs(run: ForeignRun, database: sqlite3.Connection, table: str, run_id: str) -> dict[str, str]:
    try:
        rows = database.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ? ORDER BY rowid", (run_id,))
        return {str(name): str(value) for name, value in rows}
    except sqlite3.DatabaseError as error:
        run.losses.append(f"its {table} cannot be read: {error}")
        return {}


def _points_of_database(run: ForeignRun, database: sqlite3.Connection, run_id: str) -> Iterator[_Point]:
    query = """SELECT timestamp, step, key, value, is_nan FROM metrics WHERE run_uuid = ?
        ORDER BY timestamp, step, key"""
    num_bad = 0
    try:
        for time_ms, step, name, value, is_nan in database.execute(query, (run_id,)):
            try:
                number = nan if is_nan else value if abs(value) < _LARGEST else inf if value > 0 else -inf
                yield time_ms / 1000, int(step), str(name), float(number)
            except (TypeError, ValueError, OverflowError):  # SQLite keeps any value in any column
                num_bad += 1
    except sqlite3.DatabaseError as error:
        run.losses.append(f"its metrics were not read to their end: {error}")
    if num_bad:
        run.losses.append(f"{num_bad} rows of its metrics are damaged, and were left out")


def _describe(run: ForeignRun, meta: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    run.name = str(meta.get("run_name") or tags.get("mlflow.runName") or "")
    run.notes = tags.get("mlflow.note.content", "")
    run.labels = [
        f"{name}={value}" if value else name for name, value in tags.items() if not name.startswith("mlflow.")
    ]
    left_out = ("mlflow.runName", "mlflow.note.content")
    run.metadata = {name: value for name, value in tags.items() if name.startswith("mlflow.") and name not in left_out}
    with contextlib.suppress(KeyError, TypeError, OverflowError):
        run.created = meta["start_time"] / 1000
        run.ended = meta["end_time"] / 1000
    match meta.get("status"):
        case "FAILED":
            run.outcome, run.error = "error", "MLflow has recorded that it failed"
        case "KILLED":
            run.outcome = "canceled"
        case "RUNNING" | "SCHEDULED" as status:
            run.outcome = "paused"
            run.metadata["mlflow.status"] = status
