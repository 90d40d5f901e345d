"""Checkpoints saved by one process alone, straight into a storage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_sdk.records import Manifest
from core_sdk.storage import Selector, Staging, Storage, unite


def store_alone(staging: Staging, metadata: Mapping[str, Any]) -> Manifest:
    """Takes all steps after the files are written."""
    shard = staging.seal()
    staging.contribute(list(shard.files), staging.address)
    return staging.commit(unite([shard]), metadata)


def upload(
    storage: Storage, storage_id: str, source: Path, metadata: Mapping[str, Any], selector: Selector | None = None
) -> Manifest:
    """Stores the files of the directory `source`."""
    with storage.stage(storage_id) as staging:
        staging.fill(source, selector, copy=False)
        return store_alone(staging, metadata)
