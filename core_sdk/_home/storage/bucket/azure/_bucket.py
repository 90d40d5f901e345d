"""Checkpoints in Azure's Blob storage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import (
    Bucket,
    ObjectExistsError,
    ObjectMissingError,
    PartedUpload,
    Sink,
    StoredObject,
    hand_on,
)
from core_sdk._home.storage.bucket._refusals import StoreRequest
from core_sdk._home.storage.bucket.azure._account import Account
from core_sdk._home.storage.bucket.azure._refusals import AZURE, DELETE, LIST, READ, WRITE, refuse_foreign
from core_sdk._home.storage.bucket.azure._upload import AzurePartedUpload, drop_blocks

# These come after our own imports, one of which says what to install if they are missing.
from azure.core import MatchConditions  # isort: skip
from azure.storage.blob import BlobClient, BlobProperties  # isort: skip

_PARTIAL = 206


class AzureBucket(Bucket):
    """The blobs under `prefix` in `container` of one account."""

    def __init__(
        self,
        container: str,
        prefix: str,
        *,
        connection_string: str | None = None,
        account_url: str | None = None,
        credential: str | None = None,
        timeout_s: float = 60,
    ) -> None:
        """Makes no request. `credential`, which goes with `account_url`, is a key or a SAS.

        Without credentials it uses the variables of `AzureSettings`, and without those the identity that is logged in.
        Raises `ValueError` for contradictions and for addresses that hold credentials, `CredentialsMissingError` if no
        account is known, `CredentialsRejectedError` for a malformed connection string.
        """
        prefix = prefix.strip("/")
        place = f"azure://{container}/{prefix}".rstrip("/")
        if connection_string is None and credential is None:
            account = Account.from_environment(place, account_url)
        else:
            account = Account(connection_string, account_url, credential)
        self._root = f"{prefix}/" if prefix else ""
        self.url = f"{place}?account_url={quote(account.endpoint(place), safe='')}"
        self._service = account.connect(place, timeout_s)
        self._container = self._service.get_container_client(container)

    def put(self, name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        condition: dict[str, Any] = {}
        if if_absent:
            condition = {"match_condition": MatchConditions.IfMissing}
        elif if_version is not None:
            condition = {"match_condition": MatchConditions.IfNotModified, "etag": f'"{if_version}"'}
        try:
            with self._translated(name, WRITE):
                self._blob(name).upload_blob(
                    content, length=len(content), overwrite=True, validate_content=True, **condition
                )
        except ObjectMissingError as error:
            raise ObjectExistsError(self.where(name)) from error  # with `if_version`, and the object is gone

    def begin(self, name: str, entry: FileEntry) -> PartedUpload:
        return AzurePartedUpload(self._blob(name), self.where(name), entry)

    def read(self, name: str, start: int, size_bytes: int, sink: Sink) -> None:
        def take(response: Any) -> None:
            answer = response.http_response
            try:
                refuse_foreign(response)
                if answer.status_code < 300:
                    content_range = answer.headers.get("Content-Range") if answer.status_code == _PARTIAL else None
                    pieces = answer.stream_download(None, decompress=False)
                    hand_on(content_range, pieces, start, size_bytes, self.where(name), sink)
            except BaseException:
                answer.internal_response.close()  # a connection with unread bytes cannot serve another request
                raise

        # The library would collect the whole range in memory, and retry twice when the connection breaks. This hook
        # takes the bytes first, without decompressing them; the library then finds nothing left to read.
        with self._translated(name, READ):
            self._blob(name).download_blob(
                start, size_bytes, max_concurrency=1, decompress=False, raw_response_hook=take
            )

    def stat(self, name: str) -> StoredObject:
        with self._translated(name, READ):
            return _stored(name, self._blob(name).get_blob_properties())

    def list(self, under: str = "") -> Iterator[StoredObject]:
        with self._translated(under, LIST):
            for found in self._container.list_blobs(name_starts_with=self._root + under):
                # Consoles make an empty blob with the name of the prefix, as a folder.
                if name := found.name.removeprefix(self._root):
                    yield _stored(name, found)

    def delete(self, name: str) -> None:
        if {".", ".."} & set(name.split("/")):
            return  # such a name cannot be part of a URL: another blob would be deleted
        with contextlib.suppress(ObjectMissingError), self._translated(name, DELETE):
            self._blob(name).delete_blob()

    def abort_uploads(self, under: str) -> int:
        with self._translated(under, LIST):
            found = list(self._container.list_blobs(name_starts_with=self._root + under, include=["uncommittedblobs"]))
        # Uncommitted blobs are listed without a size, like empty blobs, which refuse a create-only commit.
        names = [item.name.removeprefix(self._root) for item in found if not item.size]
        return sum(drop_blocks(self._blob(name), self.where(name)) for name in names)

    def close(self) -> None:
        self._service.close()

    def _translated(self, name: str, need: str) -> contextlib.AbstractContextManager[None]:
        return AZURE.translated(StoreRequest(self.where(name), need))

    def _blob(self, name: str) -> BlobClient:
        return self._container.get_blob_client(self._root + name)


def _stored(name: str, found: BlobProperties) -> StoredObject:
    return StoredObject(
        name=name,
        size_bytes=found.size,
        updated=found.last_modified.timestamp(),
        version=found.etag.strip('"'),  # quoted in headers, but not in lists
    )
