"""Brings the index up to date with the folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import sqlalchemy as sa

from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError, TrialNotFoundError
from core_sdk.tracking.home import ExperimentFolder, Home, TrialFolder
from core_sdk.tracking.index._batch import Batch, RefreshResult
from core_sdk.tracking.index._schema import experiment
from core_sdk.tracking.index._trial_folders import forget_trial, has_changed, index_trial, known_trials

logger = logging.getLogger("core_sdk.tracking")

_DELETE_EXPERIMENT = sa.delete(experiment).where(experiment.c.experiment_id == sa.bindparam("row_id"))


def refresh(home: Home, connection: sa.Connection, commit: Callable[[], None]) -> RefreshResult:
    """Indexes what the folder gained and forgets what it lost. One caller at a time."""
    batch = Batch(connection, commit)
    _index_experiments(home, batch)
    known = known_trials(connection)
    present = home.trial_ids(include_deleted=True)
    for trial_id in known.keys() - set(present):
        forget_trial(connection, trial_id)
    for trial_id in present:
        if trial_id not in known or has_changed(home, trial_id, known[trial_id]):
            _index_or_forget(TrialFolder(home.root, trial_id), batch, is_known=trial_id in known)
    batch.commit()
    return batch.result


def have_changed(home: Home, connection: sa.Connection, trial_ids: Iterable[int]) -> bool:
    """Whether a refresh would find something new in any of these trials."""
    known = known_trials(connection)
    return any(trial_id not in known or has_changed(home, trial_id, known[trial_id]) for trial_id in trial_ids)


def _index_or_forget(folder: TrialFolder, batch: Batch, *, is_known: bool) -> None:
    try:
        index_trial(folder, batch)
        return
    except FileNotFoundError:
        is_known = True  # in part, and being deleted
    except TrialNotFoundError:
        pass
    except (RecordDamagedError, OSError) as error:
        _leave_out(folder.path, error, batch)
    if is_known:
        forget_trial(batch.connection, folder.trial_id)


def _index_experiments(home: Home, batch: Batch) -> None:
    query = sa.select(experiment.c.experiment_id, experiment.c.signature)
    known = {row.experiment_id: row.signature for row in batch.connection.execute(query)}
    present = set()
    for experiment_id in home.experiment_ids():
        folder = ExperimentFolder(home.root, experiment_id)
        try:
            signature = _signature(folder.record_path)
            if known.get(experiment_id) != signature:
                _index_experiment(folder, signature, batch.connection)
            present.add(experiment_id)
        except (FileNotFoundError, ExperimentNotFoundError):
            continue
        except (RecordDamagedError, OSError) as error:
            _leave_out(folder.record_path, error, batch)
    for experiment_id in known.keys() - present:
        batch.connection.execute(_DELETE_EXPERIMENT, {"row_id": experiment_id})


def _index_experiment(folder: ExperimentFolder, signature: str, connection: sa.Connection) -> None:
    record = folder.read()
    row = {
        "experiment_id": folder.experiment_id,
        "name": record.name,
        "created": record.created,
        "labels": msgspec.json.encode(record.labels).decode(),
        "description": record.description,
        "signature": signature,
    }
    connection.execute(_DELETE_EXPERIMENT, {"row_id": folder.experiment_id})
    connection.execute(sa.insert(experiment), row)


def _leave_out(path: Path, error: RecordDamagedError | OSError, batch: Batch) -> None:
    """Damaged, or somebody else's and not to be read."""
    logger.warning("%s is left out: %s", path, error)
    batch.result.left_out.append(path)


def _signature(record: Path) -> str:
    """Changes whenever the file is replaced."""
    status = record.stat()
    return f"{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"
