"""Removes what dead processes have left in a bucket.

A save sends its files, then its manifest, and holds a lease all the while. A removal holds one too, and removes the
manifest first. So objects without a manifest belong to a lease, and can be removed when its owner is dead. But the
owner may only be slow, and its manifest under way. Therefore the sweep puts a tombstone, an empty object, in the
manifest's place. Both are written only if nothing is there, so that the second one to come fails. A save that finds a
tombstone knows that its files are gone; a sweep that finds a manifest changes nothing. The tombstone stays for as long
as a request can be under way, and is then removed together with the lease.
"""

from __future__ import annotations

import logging

from core_sdk._ground.records import MANIFEST_NAME
from core_sdk._home.storage._verify import checked_manifest
from core_sdk._home.storage.bucket._bucket import ObjectMissingError, StoredObject
from core_sdk._home.storage.bucket._leases import LeaseRecord, abandoned_leases, store_time
from core_sdk._home.storage.bucket._retrying_bucket import RetryingBucket
from core_sdk.errors import CheckpointDamagedError, CheckpointTooNewError

logger = logging.getLogger("core_sdk.storage")


def sweep(objects: RetryingBucket, lease_s: float) -> list[str]:
    """Removes the remains of dead processes, and returns descriptions of them for people.

    Saves, removals and other sweeps may run meanwhile. Raises `StorageError`.
    """
    leases = abandoned_leases(objects, lease_s)
    return [removed for lease, record in leases for removed in _clean(objects, lease_s, lease, record)]


def _clean(objects: RetryingBucket, lease_s: float, lease: StoredObject, record: LeaseRecord) -> list[str]:
    folder = f"{record.storage_id}/"
    manifest_name = f"{folder}{MANIFEST_NAME}"
    if not objects.put_tombstone(manifest_name):
        # The checkpoint is stored after all, or still, or some of its files were to be removed.
        _remove_removed(objects, record.storage_id, manifest_name)
        objects.abort_uploads(folder)
        objects.remove(lease.name)
        return []
    remains = [item.name for item in objects.all_under(folder) if item.name != manifest_name]
    objects.remove_all(remains)
    num_aborted = objects.abort_uploads(folder)
    if store_time(objects) - _time_of_tombstone(objects, manifest_name) > lease_s:
        objects.remove(manifest_name)
        objects.remove(lease.name)
    if not remains and not num_aborted:
        return []
    logger.info("removed %s, which a dead process had left behind", objects.where(folder))
    return [objects.where(folder)]


def _remove_removed(objects: RetryingBucket, storage_id: str, manifest_name: str) -> None:
    """Removes the files that the manifest lists as removed."""
    try:
        manifest = checked_manifest(objects.read(manifest_name), storage_id)
    except (ObjectMissingError, CheckpointDamagedError, CheckpointTooNewError):
        return  # an unreadable manifest does not say what to remove
    names = {f"{storage_id}/{name}" for name in set(manifest.removed) - manifest.files.keys()}
    objects.remove_all(item.name for item in objects.all_under(f"{storage_id}/") if item.name in names)


def _time_of_tombstone(objects: RetryingBucket, name: str) -> float:
    try:
        return objects.stat(name).updated
    except ObjectMissingError:  # another sweep was faster
        return 0.0
