"""Google Cloud Storage."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import google_crc32c
import requests

from core_sdk.records import FileEntry
from core_sdk.storage.bucket._bucket import (
    Bucket,
    ObjectMissingError,
    PartedUpload,
    Sink,
    StoredObject,
    StreamedUpload,
    TransientError,
)
from core_sdk.storage.bucket.gcs import _objects as objects
from core_sdk.storage.bucket.gcs._client import GcsClient, Pieces, base64_of, json_of, version_of
from core_sdk.storage.bucket.gcs._errors import Purpose, failures_told
from core_sdk.storage.bucket.gcs._stream import GcsStream
from core_sdk.storage.bucket.gcs._upload import abort_parts, begin_parts

_PIECE_BYTES = 1 << 20
# As many as Google takes in one request.
_BATCH_SIZE = 100
_PARTIAL = 206


class GcsBucket(Bucket):
    """Credentials are found as Google's tools find them; with STORAGE_EMULATOR_HOST there are none."""

    def __init__(self, bucket: str, prefix: str, *, timeout_s: float = 60) -> None:
        """`timeout_s` is how long the store may be silent.

        Raises `CredentialsMissingError`, `UnknownStorageError`.
        """
        prefix = prefix.strip("/")
        self.url = f"gs://{bucket}/{prefix}".rstrip("/")
        self._wire = GcsClient(self.url, bucket, prefix, timeout_s)
        # What emulators do not know is asked of them once.
        self._knows_parts = True
        self._knows_batches = True

    def put(self, name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        crc32c = base64_of(f"{google_crc32c.value(content):08x}")
        query = {"uploadType": "multipart"}
        if if_absent or if_version is not None:
            query["ifGenerationMatch"] = if_version or "0"
        content_type, body = _multipart({"name": self._wire.key(name), "crc32c": crc32c}, content)
        answer = self._wire.ask(
            "POST",
            self._wire.upload_url(**query),
            self._wire.purpose(name, "storage.objects.create"),
            headers={"Content-Type": content_type},
            body=body,
        )
        resource = json_of(answer)
        if (resource.get("size"), resource.get("crc32c")) != (str(len(content)), crc32c):
            # Otherwise it would be in the way of the next try, if that is to find none.
            objects.delete(self._wire, name, version_of(resource))
            raise TransientError("the store received other bytes than were sent")

    def begin(self, name: str, entry: FileEntry) -> PartedUpload | StreamedUpload:
        if self._knows_parts:
            if parts := begin_parts(self._wire, name, entry):
                return parts
            self._knows_parts = False
        return GcsStream(self._wire, name, entry)

    def read(self, name: str, start: int, size_bytes: int, sink: Sink) -> None:
        purpose = self._wire.purpose(name, "storage.objects.get", needs_object=True)
        # Without an encoding the store does not unpack objects that say they are compressed.
        headers = {"Range": f"bytes={start}-{start + size_bytes - 1}", "Accept-Encoding": "identity"}
        answer = self._wire.ask("GET", self._wire.media_url(name), purpose, headers=headers, stream=True)
        with answer, failures_told(purpose):
            _check_range(answer, start, size_bytes, purpose)
            num_read = 0
            for piece in answer.iter_content(_PIECE_BYTES):
                num_read += len(piece)
                if num_read > size_bytes:
                    break
                sink(piece)
        if num_read != size_bytes:
            raise TransientError(f"{num_read:,} bytes came of {size_bytes:,}")

    def stat(self, name: str) -> StoredObject:
        return objects.stat(self._wire, name)

    def list(self, under: str = "") -> Iterator[StoredObject]:
        fields = "items(name,size,updated,generation,crc32c),nextPageToken"
        for page in self._pages(under, prefix=self._wire.key(under), fields=fields):
            # One emulator gives all that there is in one page, in no order.
            stored = sorted((objects.stored_object(self._wire, blob) for blob in page), key=lambda each: each.name)
            # Consoles make folders visible by an object of the prefix's own name.
            yield from (each for each in stored if each.name)

    def list_folders(self) -> Iterator[str]:
        seen: set[str] = set()
        for page in self._pages("", prefix=self._wire.key(""), delimiter="/", fields="prefixes,nextPageToken"):
            folders = sorted({self._wire.name(prefix).removesuffix("/") for prefix in page.prefixes} - seen - {""})
            seen.update(folders)
            yield from folders

    def delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _BATCH_SIZE):
            some = names[start : start + _BATCH_SIZE]
            if len(some) == 1 or not self._knows_batches:
                self._delete_singly(some)
            else:
                self._delete_together(some)

    def copy(self, source: str, target: str, entry: FileEntry) -> StoredObject:
        blob, origin = objects.blob_of(self._wire, target), objects.blob_of(self._wire, source)
        purpose = self._wire.purpose(source, "storage.objects.get and storage.objects.create", needs_object=True)
        token: str | None = None
        with failures_told(purpose):
            # A large object may take several calls, each of which copies some of it.
            while True:
                token, _, _ = blob.rewrite(origin, token=token, timeout=self._wire.timeout_s, retry=None)
                if token is None:
                    return objects.stored_object(self._wire, blob)

    def abort_uploads(self, under: str) -> int:
        return abort_parts(self._wire, under) if self._knows_parts else 0

    def close(self) -> None:
        self._wire.close()

    def _pages(self, name: str, **query: str) -> Iterator[Any]:
        purpose = self._wire.purpose(name, "storage.objects.list")
        pages = self._wire.client.list_blobs(self._wire.bucket, **query, timeout=self._wire.timeout_s, retry=None).pages
        while True:
            with failures_told(purpose):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def _delete_singly(self, names: Sequence[str]) -> None:
        for name in names:
            objects.delete(self._wire, name)

    def _delete_together(self, names: Sequence[str]) -> None:
        purpose = self._wire.purpose(names[0], "storage.objects.delete", needs_object=True)
        try:
            with failures_told(purpose), self._wire.client.batch():
                for name in names:
                    objects.blob_of(self._wire, name).delete(timeout=self._wire.timeout_s, retry=None)
        except ObjectMissingError:
            # The library tells one failure of many; what else failed, each has to be asked.
            self._delete_singly(names)
        except ValueError:
            # One emulator's answer is not in several parts, so that the library knows nothing of any.
            self._delete_singly(names)
            self._knows_batches = False


def _multipart(metadata: dict[str, str], content: bytes) -> tuple[str, Pieces]:
    """Content type and body of an upload in one request (RFC 2387)."""
    boundary = secrets.token_hex(16)
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(metadata)}\r\n"
        f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    body = Pieces(head.encode(), content, f"\r\n--{boundary}--\r\n".encode())
    return f"multipart/related; boundary={boundary}", body


def _check_range(answer: requests.Response, start: int, size_bytes: int, purpose: Purpose) -> None:
    """Raises `ObjectMissingError` where the object ends before the range does."""
    if answer.status_code != _PARTIAL:
        if start == 0 and answer.headers.get("Content-Length") == str(size_bytes):
            return
        raise TransientError("what came is not the range that was asked for")
    told = re.fullmatch(r"bytes (\d+)-(-?\d+)/(\d+)", answer.headers.get("Content-Range", ""))
    first, last, total = map(int, told.groups()) if told else (-1, -1, -1)
    if told and total < start + size_bytes:
        raise ObjectMissingError(purpose.where)
    if (first, last) != (start, start + size_bytes - 1):
        raise TransientError("what came is not the range that was asked for")
