"""Tells the driver's callbacks about each report, through a file that the driver reads as it grows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.records import to_json
from core_sdk._home import TrialFolder
from core_sdk.core import Context
from core_sdk.train._values import plain_metrics


class Told(msgspec.Struct):
    """A report, with the metrics of all ranks."""

    metrics: list[dict[str, Any]]
    storage: str = ""
    storage_id: str | None = None


def callbacks_path(folder: TrialFolder, attempt: int) -> Path:
    return folder.path / f"{attempt}.callbacks"


def tell_callbacks(folder: TrialFolder, context: Context, metrics: Mapping[str, Any], storage_id: str | None) -> None:
    """Writes a report for the driver's callbacks. Collective."""
    gathered = context.distributed.gather(to_json(plain_metrics(metrics), "the metrics"))
    if gathered is not None:
        told = Told(gathered, context.checkpoint.storage_url, storage_id)
        path = callbacks_path(folder, context.info.trial.attempt)
        with path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(told) + b"\n")
