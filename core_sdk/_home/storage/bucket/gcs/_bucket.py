"""Google Cloud Storage."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import google_crc32c
import requests

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import Bucket, PartedUpload, Sink, StoredObject, TransientError, hand_on
from core_sdk._home.storage.bucket._refusals import FOREIGN_ANSWER
from core_sdk._home.storage.bucket.gcs._client import TIMEOUT_S, GcsClient, Pieces, base64_of
from core_sdk._home.storage.bucket.gcs._refusals import GOOGLE
from core_sdk._home.storage.bucket.gcs._upload import GcsPartedUpload, abort_uploads

_PIECE_BYTES = 1 << 20


class GcsBucket(Bucket):
    """A bucket of Google Cloud Storage.

    Credentials are found as Google's tools find them. With STORAGE_EMULATOR_HOST no credentials are used.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        """Makes a client. Raises `CredentialsMissingError`, `UnknownStorageError`."""
        prefix = prefix.strip("/")
        self.url = f"gs://{bucket}/{prefix}".rstrip("/")
        self._client = GcsClient(self.url, bucket, prefix)

    def put(self, name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        crc32c = base64_of(f"{google_crc32c.value(content):08x}")
        query = {"uploadType": "multipart"}
        if if_absent or if_version is not None:
            query["ifGenerationMatch"] = if_version or "0"
        content_type, body = _multipart({"name": self._client.key(name), "crc32c": crc32c}, content)
        answer = self._client.ask(
            "POST",
            self._client.upload_url(**query),
            self._client.request(name, "storage.objects.create"),
            headers={"Content-Type": content_type},
            body=body,
        )
        resource = _resource_in(answer)
        if (resource.get("size"), resource.get("crc32c")) != (str(len(content)), crc32c):
            # Otherwise the next try would fail if it uses `if_absent`.
            self._client.delete(name, str(resource["generation"]))
            raise TransientError("the store received other bytes than were sent")

    def begin(self, name: str, entry: FileEntry) -> PartedUpload:
        return GcsPartedUpload(self._client, name, entry)

    def read(self, name: str, start: int, size_bytes: int, sink: Sink) -> None:
        request = self._client.request(name, "storage.objects.get", needs_object=True)
        # With "identity" the store does not unpack objects that are marked as compressed.
        headers = {"Range": f"bytes={start}-{start + size_bytes - 1}", "Accept-Encoding": "identity"}
        answer = self._client.ask("GET", self._client.media_url(name), request, headers=headers, stream=True)
        with answer, GOOGLE.translated(request):
            pieces = answer.iter_content(_PIECE_BYTES)
            hand_on(answer.headers.get("Content-Range"), pieces, start, size_bytes, request.where, sink)

    def stat(self, name: str) -> StoredObject:
        return self._client.stat(name)

    def list(self, under: str = "") -> Iterator[StoredObject]:
        found = self._client.library.list_blobs(
            self._client.bucket,
            prefix=self._client.key(under),
            fields="items(name,size,updated,generation,crc32c),nextPageToken",
            timeout=TIMEOUT_S,
            retry=None,
        )
        with GOOGLE.translated(self._client.request(under, "storage.objects.list")):
            stored = map(self._client.stored_object, found)
            # Consoles make an empty object with the name of the prefix, as a folder.
            yield from (each for each in stored if each.name)

    def delete(self, name: str) -> None:
        self._client.delete(name)

    def abort_uploads(self, under: str) -> int:
        return abort_uploads(self._client, under)

    def close(self) -> None:
        self._client.close()


def _multipart(metadata: dict[str, str], content: bytes) -> tuple[str, Pieces]:
    """Returns the content type and body of an upload in one request (RFC 2387)."""
    boundary = secrets.token_hex(16)
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(metadata)}\r\n"
        f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    body = Pieces(head.encode(), content, f"\r\n--{boundary}--\r\n".encode())
    return f"multipart/related; boundary={boundary}", body


def _resource_in(answer: requests.Response) -> dict[str, Any]:
    """Returns the object that an upload's answer describes."""
    try:
        resource = answer.json()
    except requests.JSONDecodeError:
        resource = None
    if not isinstance(resource, dict) or "generation" not in resource:
        raise TransientError(FOREIGN_ANSWER)
    return resource
