"""Removing what dead processes left in a bucket.

A save sends its files, then its manifest, and holds a lease all the while. A removal holds one too, and takes the
manifest away first. So objects without a manifest belong to a lease, and once its owner is dead they can go. But the
owner may only have been slow, and its manifest under way. Therefore the sweep puts a tombstone, an empty object, in the
manifest's place, which both write only if nothing is there: whoever comes first, the other one fails. A save that finds
a tombstone knows that its files are gone; a sweep that finds a manifest leaves everything as it is. The tombstone stays
for as long as a request can be under way, and then goes with the lease.
"""

from __future__ import annotations

import logging

from core_sdk.errors import CheckpointDamagedError, CheckpointTooNewError
from core_sdk.records import MANIFEST_NAME
from core_sdk.storage._verify import checked_manifest
from core_sdk.storage.bucket._bucket import ObjectMissingError, StoredObject
from core_sdk.storage.bucket._leases import LeaseRecord, abandoned_leases, store_time
from core_sdk.storage.bucket._retrying_bucket import RetryingBucket

logger = logging.getLogger("core_sdk.storage")


class Sweep:
    """Safe beside living saves, removals and other sweeps."""

    def __init__(self, objects: RetryingBucket, lease_s: float) -> None:
        self._objects = objects
        self._lease_s = lease_s

    def run(self) -> list[str]:
        """What was removed. Raises `StorageError`."""
        leases = abandoned_leases(self._objects, self._lease_s)
        return [removed for lease, record in leases for removed in self._clean(lease, record)]

    def _clean(self, lease: StoredObject, record: LeaseRecord) -> list[str]:
        folder = f"{record.storage_id}/"
        manifest_name = f"{folder}{MANIFEST_NAME}"
        if not self._objects.put_tombstone(manifest_name):
            # It was stored, or not removed, after all; or it was removed in part.
            self._remove_removed(record.storage_id, manifest_name)
            self._objects.abort_uploads(folder)
            self._objects.remove(lease.name)
            return []
        remains = [item.name for item in self._objects.all_under(folder) if item.name != manifest_name]
        self._objects.remove_all(remains)
        num_aborted = self._objects.abort_uploads(folder)
        self._remove_tombstone(lease, manifest_name)
        if not remains and not num_aborted:
            return []
        logger.info("removed %s, which a dead process had left behind", self._objects.where(folder))
        return [self._objects.where(folder)]

    def _remove_removed(self, storage_id: str, manifest_name: str) -> None:
        """Removes the files that the manifest calls removed."""
        try:
            manifest = checked_manifest(self._objects.read(manifest_name), storage_id)
        except (ObjectMissingError, CheckpointDamagedError, CheckpointTooNewError):
            return  # nothing can be told of it
        names = {f"{storage_id}/{name}" for name in set(manifest.removed) - manifest.files.keys()}
        self._objects.remove_all(item.name for item in self._objects.all_under(f"{storage_id}/") if item.name in names)

    def _remove_tombstone(self, lease: StoredObject, manifest_name: str) -> None:
        try:
            put_at = self._objects.stat(manifest_name).updated
        except ObjectMissingError:  # another sweep was faster
            put_at = 0.0
        if store_time(self._objects) - put_at > self._lease_s:
            self._objects.remove(manifest_name)
            self._objects.remove(lease.name)
