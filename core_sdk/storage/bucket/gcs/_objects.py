"""Single objects of Google's storage, asked for through Google's library."""

from __future__ import annotations

import contextlib
from typing import Any

from core_sdk.storage.bucket._bucket import ObjectMissingError, StoredObject, TransientError
from core_sdk.storage.bucket.gcs._client import GcsClient, hex_of
from core_sdk.storage.bucket.gcs._errors import NOT_THE_STORE, failures_told


def blob_of(wire: GcsClient, name: str, generation: str | None = None) -> Any:
    """Google's `Blob`; asks for nothing yet."""
    return wire.client.bucket(wire.bucket).blob(wire.key(name), generation=generation)


def stat(wire: GcsClient, name: str) -> StoredObject:
    """Raises `ObjectMissingError`."""
    blob = blob_of(wire, name)
    with failures_told(wire.purpose(name, "storage.objects.get", needs_object=True)):
        blob.reload(timeout=wire.timeout_s, retry=None)
    return stored_object(wire, blob)


def delete(wire: GcsClient, name: str, version: str | None = None) -> None:
    """Deletes it, if it is there and of this version."""
    blob = blob_of(wire, name, version)
    purpose = wire.purpose(name, "storage.objects.delete", needs_object=True)
    with contextlib.suppress(ObjectMissingError), failures_told(purpose):
        blob.delete(if_generation_match=version, timeout=wire.timeout_s, retry=None)


def stored_object(wire: GcsClient, blob: Any) -> StoredObject:
    if blob.size is None or blob.generation is None:
        raise TransientError(NOT_THE_STORE)
    updated = blob.updated
    return StoredObject(
        name=wire.name(blob.name),
        size_bytes=int(blob.size),
        updated=0.0 if updated is None else updated.timestamp(),
        version=str(blob.generation),
        crc32c=hex_of(blob.crc32c),
    )
