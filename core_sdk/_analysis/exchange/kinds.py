"""Finds the runs of other tools in a folder, and guesses which tool has written them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from core_sdk._analysis.exchange import mlflow, trackio, trackio_inbox
from core_sdk._analysis.exchange.run import ForeignRun
from core_sdk._analysis.exchange.sqlite_files import tables_of
from core_sdk._analysis.exchange.wandb.folders import log_runs
from core_sdk.errors import CoreSDKError

_MLFLOW_TABLES = {"experiments", "runs", "params", "metrics", "tags"}
_TRACKIO_TABLES = {"metrics", "configs"}
_DATABASES = (".db", ".sqlite", ".sqlite3")


def find_runs(path: Path) -> Iterator[ForeignRun]:
    """Returns the runs in a file, or in a folder and those below it. Nothing is looked for inside of a run's folder.

    Raises `FileNotFoundError`, `CoreSDKError` if there are none, or `MissingDependencyError` for event files.
    """
    if not path.exists():
        raise FileNotFoundError(2, "there is no such file or folder", str(path))
    if (path / "home.json").exists():
        raise _unknown(path, "it is a home of Core SDK: `core-sdk home merge` takes its trials")
    path = path.resolve() if path.is_symlink() else path  # no other link is followed
    mlflow_folders: list[Path] = []
    wandb_logs: list[Path] = []
    databases: list[Path] = []
    fragments: list[Path] = []
    event_files: defaultdict[Path, list[Path]] = defaultdict(list)
    for folder, file in _walk(path):
        if file is None:
            mlflow_folders.append(folder)
        elif file.suffix == ".wandb":
            wandb_logs.append(file)
        elif "tfevents" in file.name:
            event_files[folder].append(file)
        elif trackio_inbox.is_fragment(file):
            fragments.append(file)
        elif file.suffix in _DATABASES or path == file:
            databases.append(file)
    found: list[Iterator[ForeignRun]] = []
    if event_files:
        from core_sdk._analysis.exchange.event_files import event_file_runs

        found.append(event_file_runs(path, event_files))
    if mlflow_folders:
        found.append(mlflow.folder_runs(mlflow_folders))
    if wandb_logs:
        found.append(log_runs(wandb_logs))
    found += [runs for each in databases if (runs := _runs_of_database(each)) is not None]
    if fragments:
        found.append(trackio.inbox_runs(fragments, _projects(databases)))
    if not found:
        hidden = "; repositories of Aim are not read" if (path / ".aim").exists() else ""
        raise _unknown(path, f"there are no records of a tool that is known{hidden}")
    return chain.from_iterable(found)


def _unknown(path: Path, reason: str) -> CoreSDKError:
    return CoreSDKError(
        f"{path} cannot be imported: {reason}. What can be: event files of TensorBoard, folders of wandb's runs, "
        "stores of MLflow, databases of trackio."
    )


def _walk(path: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yields the folders of MLflow's runs, the logs of wandb's, and all files outside of these with their folders."""
    if path.is_file():
        yield path.parent, path
        return
    for parent, directories, names in os.walk(path):
        folder = Path(parent)
        if mlflow.is_run_folder(folder):
            directories.clear()
            yield folder, None
            continue
        if logs := [name for name in names if name.endswith(".wandb")]:
            directories.clear()
            yield from ((folder, folder / name) for name in sorted(logs))
            continue
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        yield from ((folder, folder / name) for name in sorted(names))


def _projects(databases: Iterable[Path]) -> Iterator[str]:
    """Yields the names of trackio's projects that have a database among these."""
    for path in databases:
        with contextlib.suppress(OSError, sqlite3.DatabaseError):
            if tables_of(path) >= _TRACKIO_TABLES:
                yield path.stem


def _runs_of_database(path: Path) -> Iterator[ForeignRun] | None:
    """Returns the runs of a database; None if the file is none of MLflow or trackio."""
    try:
        tables = tables_of(path)
    except (OSError, sqlite3.DatabaseError) as error:
        return iter([_unreadable(path, error)])
    if tables >= _MLFLOW_TABLES:
        return _guarded(path, mlflow.database_runs(path))
    return _guarded(path, trackio.database_runs(path)) if tables >= _TRACKIO_TABLES else None


def _guarded(path: Path, runs: Iterator[ForeignRun]) -> Iterator[ForeignRun]:
    try:
        yield from runs
    except sqlite3.DatabaseError as error:
        yield _unreadable(path, error)


def _unreadable(path: Path, error: Exception) -> ForeignRun:
    loss = f"its runs cannot be read: {error}"
    return ForeignRun(key=f"unreadable:{path}", where=str(path), experiment="", losses=[loss])
