"""The order of an attempt, as a file next to the trial's batch script: `<home>/runs/<id>/slurm.order.json`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._ground.records import from_json, to_json
from core_sdk._home.folders import TrialFolder
from core_sdk.errors import RecordDamagedError, SlurmError, TrialNotFoundError

_RECORDING_S = 30.0
_POLL_S = 0.05


def write_order(folder: TrialFolder, order: AttemptOrder) -> None:
    written = replace(order, hparams=to_json(dict(order.hparams), "the hyperparameters"))
    write_atomically(_path(folder), msgspec.json.encode(written, enc_hook=str))


def read_order(folder: TrialFolder) -> AttemptOrder | None:
    """Returns the order, or None if there is none. Raises `RecordDamagedError`."""
    try:
        content = read_regular(_path(folder))
        order = json_decoder(AttemptOrder, _construct)(content)
        # The home may have been renamed since.
        return replace(order, home_root=folder.home_root, hparams=from_json(order.hparams))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RecordDamagedError(_path(folder), str(error)) from error


def ordered_attempt(folder: TrialFolder, job_id: str) -> AttemptOrder:
    """Returns the order that the job carries out. Raises `TrialNotFoundError`, or `SlurmError` if it is not wanted."""
    if (order := read_order(folder)) is None:
        raise TrialNotFoundError(folder.trial_id, folder.home_root)
    if not _is_wanted(folder, job_id):
        raise SlurmError(f"job {job_id} starts nothing", "the master has not recorded it, or has taken it back")
    # A trial whose record exists goes on.
    return replace(order, is_first=order.is_first and not folder.exists())


def _is_wanted(folder: TrialFolder, job_id: str) -> bool:
    """Returns whether the job is the trial's newest one. The master may still be about to record it."""
    deadline = time.monotonic() + _RECORDING_S
    while True:
        record = folder.read_slurm_job()
        if record is not None and record.job_id == job_id:
            return not record.is_over
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)


def ordered_trials(home_root: Path) -> list[int]:
    """Returns the trials that have an order, by id."""
    return sorted(int(path.parent.name) for path in home_root.glob("runs/*/slurm.order.json"))


AttemptKey = tuple[int, str, str]
"""An attempt of a trial, whatever id the trial has got: its experiment, its request and its number."""


def key_of(order: AttemptOrder) -> AttemptKey:
    return order.experiment_id, order.request_id, order.name.rpartition(".")[2]


def _construct(kind: type, value: Any) -> Any:
    return kind(value)


def _path(folder: TrialFolder) -> Path:
    return folder.path / "slurm.order.json"
