"""Uploads large blobs in blocks."""

from __future__ import annotations

import uuid

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import (
    ObjectExistsError,
    ObjectMissingError,
    PartedUpload,
    TransientError,
    part_bytes,
)
from core_sdk._home.storage.bucket._refusals import StoreRequest
from core_sdk._home.storage.bucket.azure._refusals import AZURE, DELETE, WRITE

# These come after our own imports, one of which says what to install if they are missing.
from azure.core import MatchConditions  # isort: skip
from azure.storage.blob import BlobBlock, BlobClient  # isort: skip

_MOST_BLOCKS = 50_000


class AzurePartedUpload(PartedUpload):
    """An upload in blocks, staged in any order. The commit replaces the whole blob at once."""

    def __init__(self, blob: BlobClient, where: str, entry: FileEntry) -> None:
        super().__init__(entry.size_bytes, part_bytes(entry.size_bytes, _MOST_BLOCKS))
        self._blob = blob
        self._where = where
        self._entry = entry
        # Keeps two uploads of one name from taking each other's blocks. All ids of a blob must have the same length.
        self._token = uuid.uuid4().hex

    def put_part(self, index: int, content: bytes) -> None:
        with AZURE.translated(StoreRequest(self._where, WRITE)):
            self._blob.stage_block(self._block_id(index), content, length=len(content), validate_content=True)

    def _complete(self) -> None:
        blocks = [BlobBlock(self._block_id(index)) for index in range(self.num_parts)]
        with AZURE.translated(StoreRequest(self._where, WRITE)):
            # The library commits the latest block of each id, also if an earlier answer was lost.
            self._blob.commit_block_list(blocks, validate_content=True)
            size_bytes = self._blob.get_blob_properties().size
        if size_bytes != self._entry.size_bytes:
            raise TransientError(f"the blob has {size_bytes:,} bytes instead of {self._entry.size_bytes:,}")

    def _abort(self) -> None:
        drop_blocks(self._blob, self._where)

    def _block_id(self, index: int) -> str:
        return f"{self._token}{index:06d}"


def drop_blocks(blob: BlobClient, where: str) -> bool:
    """Removes the uncommitted blocks of a name that has no blob. Returns whether there was no blob.

    Azure cannot delete blocks: it drops them after a week, or when a blob of the name is committed. So this commits an
    empty blob, only if there is none, and deletes it if it is unchanged. For a moment the name has an empty blob, but
    no manifest lists it, so no checkpoint appears. If the name has a blob, the blob and the blocks are left alone.
    """
    try:
        with AZURE.translated(StoreRequest(where, WRITE)):
            made = blob.commit_block_list([], match_condition=MatchConditions.IfMissing)
        with AZURE.translated(StoreRequest(where, DELETE)):
            blob.delete_blob(etag=str(made["etag"]), match_condition=MatchConditions.IfNotModified)
    except (ObjectExistsError, ObjectMissingError):
        return False
    return True
