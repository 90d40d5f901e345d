"""Brings the index up to date with the folder."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from core_sdk._home.folders import ExperimentFolder, Home, TrialFolder
from core_sdk._home.index._schema import OF_EXPERIMENT, among
from core_sdk._home.index._transaction import IndexTransaction, RefreshResult
from core_sdk._home.index._trial_indexing import forget_trial, has_changed, index_trial, known_trials
from core_sdk._home.index._trials import open_attempts
from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError, TrialNotFoundError


class Changes(msgspec.Struct, frozen=True):
    """The experiments and trials that are new, changed or deleted since they were indexed, the newest trials first."""

    experiments: list[int]
    trials: list[int]
    gone_experiments: list[int] = []
    gone_trials: list[int] = []
    """The trials and experiments without a folder, which are not looked at: it may be on a disk that hangs."""

    def __bool__(self) -> bool:
        return bool(self.experiments or self.trials or self.gone_experiments or self.gone_trials)


def find_changes(
    connection: sqlite3.Connection, home: Home, *, only_open: bool = False, trial_id: int | None = None
) -> Changes:
    """Returns what has changed in the folder, of all trials or of one, and writes nothing.

    With `only_open`, indexed trials whose newest attempt has recorded its end are not checked: checking ten thousand of
    them takes a tenth of a second.
    """
    runs, chosen = home.runs, None if trial_id is None else [trial_id]
    where = among("trial_id", chosen)
    known = {each for (each,) in connection.execute(f"SELECT trial_id FROM trial WHERE {where.sql}", where.values)}
    present = _present(home, trial_id)
    looked_at = {each for each, _ in open_attempts(connection, where)} if only_open else chosen
    # The folder of a trial that was deleted stays, without a record.
    new = {each for each in present - known if home.folder(each).exists()}
    changed = {
        each
        for each, trial in known_trials(connection, looked_at).items()
        if each in present and has_changed(runs, each, trial)
    }
    experiments, gone = _changed_experiments(connection, home)
    return Changes(experiments, sorted(new | changed, reverse=True), gone, sorted(known - present))


def _present(home: Home, trial_id: int | None) -> set[int]:
    if trial_id is None:
        return set(home.trial_ids(include_deleted=True))
    return {trial_id} if (home.runs / str(trial_id)).is_dir() else set()


def have_changed(connection: sqlite3.Connection, home: Home, trial_ids: Collection[int]) -> bool:
    """Returns whether a refresh would find something new in any of these trials."""
    known, runs = known_trials(connection, trial_ids), home.runs
    return any(trial_id not in known or has_changed(runs, trial_id, known[trial_id]) for trial_id in trial_ids)


def index_changes(home: Home, changes: Changes, batch: IndexTransaction, within_s: float = math.inf) -> RefreshResult:
    """Indexes what the folder gained and forgets what it lost. One caller at a time.

    After `within_s` seconds it begins no further trial.
    """
    deadline = time.monotonic() + within_s
    for experiment_id in changes.gone_experiments:
        _forget_experiment(batch.connection, experiment_id)
    for trial_id in changes.gone_trials:
        forget_trial(batch.connection, trial_id)
    for experiment_id in changes.experiments:
        _index_or_forget_experiment(home.experiment_folder(experiment_id), batch)
    num_read = 0
    for num_read, trial_id in enumerate(changes.trials, start=1):
        _index_or_forget_trial(home.folder(trial_id), batch)
        batch.progress.read_trials(num_read)
        if time.monotonic() > deadline:
            break
    batch.result.unread = changes.trials[num_read:]
    return batch.finish()


def _changed_experiments(connection: sqlite3.Connection, home: Home) -> tuple[list[int], list[int]]:
    """Returns the experiments that are new or changed, and those that are gone."""
    known = dict(connection.execute("SELECT experiment_id, signature FROM experiment").fetchall())
    present = {
        experiment_id: _signature(ExperimentFolder(home.root, experiment_id).record_path)
        for experiment_id in home.experiment_ids()
    }
    changed = {one for one, signature in present.items() if signature is None or known.get(one) != signature}
    return sorted(changed), sorted(known.keys() - present.keys())


def _index_or_forget_trial(folder: TrialFolder, batch: IndexTransaction) -> None:
    try:
        index_trial(folder, batch)
        return
    except (FileNotFoundError, TrialNotFoundError):
        pass  # it was deleted, or is being deleted
    except (RecordDamagedError, OSError) as error:
        batch.result.left_out[folder.path] = str(error)
    forget_trial(batch.connection, folder.trial_id)


def _index_or_forget_experiment(folder: ExperimentFolder, batch: IndexTransaction) -> None:
    try:
        _index_experiment(folder, batch.connection)
        return
    except (FileNotFoundError, ExperimentNotFoundError):
        pass
    except (RecordDamagedError, OSError) as error:
        batch.result.left_out[folder.record_path] = str(error)
    _forget_experiment(batch.connection, folder.experiment_id)


def _forget_experiment(connection: sqlite3.Connection, experiment_id: int) -> None:
    connection.execute("DELETE FROM experiment WHERE experiment_id = ?", (experiment_id,))


def _index_experiment(folder: ExperimentFolder, connection: sqlite3.Connection) -> None:
    signature = _signature(folder.record_path)  # before it is read, so that a later change is seen
    record = folder.read()
    told = {name: getattr(record, name) for name in OF_EXPERIMENT} | folder.origin()
    recorded = msgspec.json.encode(told).decode()
    metric = record.searcher_metric
    writers = (metric.name, metric.writer) if metric is not None and metric.writer else (None, None)
    found = record.name, record.is_submitted, record.search is not None, *writers
    row = folder.experiment_id, *found, recorded, signature or ""
    connection.execute("INSERT OR REPLACE INTO experiment VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _signature(record: Path) -> str | None:
    """Returns a value that changes whenever the file is replaced, or None if the file cannot be examined."""
    try:
        status = record.stat()
    except OSError:
        return None
    return f"{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"
