"""Checkpoints saved by one process alone, straight into a storage, and those that a storage has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_sdk._ground.records import MANIFEST_NAME, Manifest
from core_sdk._home.storage import DirectoryStorage, Selector, Staging, Storage, unite
from core_sdk._home.storage.bucket import BucketStorage
from core_sdk._home.storage.bucket._retrying_bucket import TOMBSTONE

_MANIFEST = re.compile(rf"([^./\\][^/\\]*)/{re.escape(MANIFEST_NAME)}")


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


def checkpoint_ids(storage: Storage) -> list[str]:
    """Returns the checkpoints that exist in the storage, sorted: those that have a manifest."""
    if isinstance(storage, DirectoryStorage):
        manifests = (
            directory / MANIFEST_NAME for directory in storage.root.glob("[!.]*") if not directory.is_symlink()
        )
        return sorted(manifest.parent.name for manifest in manifests if manifest.exists())
    assert isinstance(storage, BucketStorage)
    objects = (stored.name for stored in storage._bucket.list() if stored.size_bytes > len(TOMBSTONE))
    return sorted(found[1] for name in objects if (found := _MANIFEST.fullmatch(name)))
