"""The order of an attempt, as a file beside the trial's batch script: `<home>/runs/<id>/slurm.order.json`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from core_sdk.decoding import json_decoder
from core_sdk.errors import RecordDamagedError
from core_sdk.files import read_regular, write_atomically
from core_sdk.master.pools._order import AttemptOrder
from core_sdk.records import from_json, to_json
from core_sdk.tracking.home import TrialFolder


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
