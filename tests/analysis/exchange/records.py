"""Records of other trackers, as `write_records.py` has written them with their own libraries."""

from __future__ import annotations

import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core_sdk._analysis.exchange.kinds import find_runs
from core_sdk._analysis.exchange.taking import TakenRun, take_runs
from core_sdk._home import Home, open_view

_HERE = Path(__file__).parent


def unpacked(name: str, directory: Path) -> Path:
    """Unpacks a folder, and returns it."""
    with tarfile.open(_HERE / f"{name}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / name


def database(name: str, path: Path) -> Path:
    """Makes a database at this path, and returns it."""
    connection = sqlite3.connect(path)
    connection.executescript((_HERE / f"{name}.sql").read_text())
    connection.close()
    return path


def inbox(directory: Path) -> Path:
    """Makes the folder of a trackio that has written a fragment, and returns the folder."""
    writer = directory / "trackio" / "inbox" / "0123456789abcdef"
    writer.mkdir(parents=True)
    (writer / "00000000.jsonl").write_bytes((_HERE / "trackio.jsonl").read_bytes())
    return directory / "trackio"


RECORDS: dict[str, Callable[[Path], Path]] = {
    "mlflow-folder": lambda directory: unpacked("mlruns", directory),
    "mlflow-database": lambda directory: database("mlflow", directory / "mlflow.db"),
    "wandb": lambda directory: unpacked("wandb", directory),
    "trackio": lambda directory: database("trackio", directory / "digits.db"),
    "trackio-inbox": inbox,
}


def imported(home: Home, path: Path) -> list[TakenRun]:
    return list(take_runs(home, find_runs(path)))


def curve(home: Home, trial_id: int, group: str, name: str) -> list[tuple[int | None, Any]]:
    """Returns the steps and values of a metric."""
    with open_view(home) as view:
        reports = view.reports(trial_id, group=group)
        return [(report.steps_completed, report.metrics[name]) for report in reports if name in report.metrics]
