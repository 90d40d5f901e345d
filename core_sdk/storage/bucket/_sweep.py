"""Removing what dead processes left in a bucket.

A save sends its files, then its manifest, and all the while holds a claim. A removal holds one too, and takes the
manifest away first. So whatever objects have no manifest belong to a claim, and once its owner is dead they can go. But
is it dead, or was it only slow, and its manifest is under way? The sweep puts a tombstone, an empty object, in the
manifest's place, which both write only if nothing is there: whoever comes first, the other one fails. A save that finds
a tombstone knows that its files are gone; a sweep that finds a manifest leaves all as it is. The tombstone stays for as
long as a request can be under way, and then goes with the claim.
"""

from __future__ import annotations

import logging

from core_sdk.errors import CheckpointDamagedError, CheckpointTooNewError
from core_sdk.storage._names import MANIFEST_NAME
from core_sdk.storage._verify import checked_manifest
from core_sdk.storage.bucket._bucket import Bucket, ObjectMissingError, StoredObject
from core_sdk.storage.bucket._leases import LeaseRecord, Leases
from core_sdk.storage.bucket._limits import Limits
from core_sdk.storage.bucket._retrying_bucket import RetryingBucket

logger = logging.getLogger("core_sdk.storage")


class Sweep:
    """Safe beside living saves, removals and other sweeps."""

    def __init__(self, bucket: Bucket, limits: Limits) -> None:
        self._bucket = bucket
        self._limits = limits
        self._leases = Leases(bucket, limits)
        self._objects = RetryingBucket(bucket, limits)

    def run(self) -> list[str]:
        """What was removed. Raises `StorageError`."""
        return [removed for lease, record in self._leases.abandoned() for removed in self._clean(lease, record)]

    def _clean(self, lease: StoredObject, record: LeaseRecord) -> list[str]:
        folder = f"{record.storage_id}/"
        manifest_name = f"{folder}{MANIFEST_NAME}"
        if not self._objects.bar(manifest_name):
            # It was stored, or not removed, after all; or only in part.
            self._remove_removed(record.storage_id, manifest_name)
            self._objects.abort_uploads(folder)
            self._leases.remove(lease.name)
            return []
        remains = [item.name for item in self._objects.all_under(folder) if item.name != manifest_name]
        self._objects.remove_all(remains)
        num_aborted = self._objects.abort_uploads(folder)
        self._remove_tombstone(lease, manifest_name)
        if not remains and not num_aborted:
            return []
        logger.info("removed %s, which a dead process had left behind", self._bucket.where(folder))
        return [self._bucket.where(folder)]

    def _remove_removed(self, storage_id: str, manifest_name: str) -> None:
        """What the manifest says is gone from the checkpoint."""
        try:
            manifest = checked_manifest(self._objects.read(manifest_name), storage_id)
        except (ObjectMissingError, CheckpointDamagedError, CheckpointTooNewError):
            return  # nothing can be told of it
        files = {f"{storage_id}/{name}" for name in manifest.removed} - {
            f"{storage_id}/{name}" for name in manifest.files
        }
        self._objects.remove_all(item.name for item in self._objects.all_under(f"{storage_id}/") if item.name in files)

    def _remove_tombstone(self, lease: StoredObject, manifest_name: str) -> None:
        try:
            barred_since = self._objects.stat(manifest_name).updated
        except ObjectMissingError:  # another sweep was faster
            barred_since = 0.0
        if self._leases.now() - barred_since > self._limits.lease_s:
            self._objects.remove_all([manifest_name])
            self._leases.remove(lease.name)
