"""Uploads large objects to Google's storage in parts, by the multipart upload of the XML API.

https://cloud.google.com/storage/docs/multipart-uploads

Google's library offers this as `transfer_manager.upload_chunks_concurrently` only, which sends one whole file. It tells
of no progress, cannot be cancelled, has a deadline for the whole but none for a silence, removes all parts when one
fails, and sends a part as one piece, which a slow line cannot do within the time-out. It neither lists nor removes the
uploads that others have begun. The requests on which it is built are private (`google.cloud.storage._media`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import google_crc32c
import requests

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import (
    ObjectMissingError,
    PartedUpload,
    StoredObject,
    TransientError,
    part_bytes,
)
from core_sdk._home.storage.bucket._refusals import FOREIGN_ANSWER
from core_sdk._home.storage.bucket.gcs._client import GcsClient, Pieces, base64_of
from core_sdk.errors import StorageError

_MOST_PARTS = 10_000


class GcsPartedUpload(PartedUpload):
    """An upload in parts to Google's storage. Safe in threads."""

    def __init__(self, client: GcsClient, name: str, entry: FileEntry) -> None:
        super().__init__(entry.size_bytes, part_bytes(entry.size_bytes, _MOST_PARTS))
        self._client = client
        self._name = name
        self._entry = entry
        self._request = client.request(name, "storage.multipartUploads.create")
        self._etags: dict[int, str] = {}
        headers = {"Content-Type": "application/octet-stream"}
        answer = client.ask("POST", self._url(uploads=""), self._request, headers=headers)
        self._upload_id = _xml(answer, self._request.where).findtext("{*}UploadId", "")
        if not self._upload_id:
            raise TransientError(FOREIGN_ANSWER)

    def put_part(self, index: int, content: bytes) -> None:
        crc32c = base64_of(f"{google_crc32c.value(content):08x}")
        url = self._url(partNumber=index + 1, uploadId=self._upload_id)
        headers = {"x-goog-hash": f"crc32c={crc32c}"}
        answer = self._client.ask("PUT", url, self._request, headers=headers, body=Pieces(content))
        if _stored_crc32c(answer) != crc32c:
            raise TransientError("the store received other bytes than were sent")
        self._etags[index] = answer.headers.get("ETag", "")

    def _complete(self) -> None:
        url = self._url(uploadId=self._upload_id)
        try:
            answer = self._client.ask("POST", url, self._request, body=_completion(self._etags))
        except ObjectMissingError:
            # The upload is also gone after a completion whose answer was lost.
            if not self._is_right(self._client.stat(self._name)):
                raise
        else:
            if not _xml(answer, self._request.where).tag.endswith("CompleteMultipartUploadResult"):
                raise TransientError(FOREIGN_ANSWER)
            self._verify()

    def _abort(self) -> None:
        _abort(self._client, self._client.key(self._name), self._upload_id)

    def _url(self, **query: str | int) -> str:
        return self._client.xml_url(self._client.key(self._name), **query)

    def _verify(self) -> None:
        found = self._client.stat(self._name)
        if not self._is_right(found):
            self._client.delete(self._name, found.version)
            raise TransientError("the store holds other bytes than were sent")

    def _is_right(self, found: StoredObject) -> bool:
        return (found.size_bytes, found.crc32c) == (self._entry.size_bytes, self._entry.crc32c)


def abort_uploads(client: GcsClient, under: str) -> int:
    """Removes the parts of all uploads to names that begin with `under`, and returns the number of uploads."""
    uploads = list(_uploads(client, under))
    for key, upload_id in uploads:
        _abort(client, key, upload_id)
    return len(uploads)


def _uploads(client: GcsClient, under: str) -> Iterator[tuple[str, str]]:
    """Yields the key and the id of each unfinished upload."""
    request = client.request(under, "storage.multipartUploads.list")
    markers: dict[str, str] = {}
    while True:
        url = client.xml_url("", uploads="", prefix=client.key(under), **markers)
        listed = _xml(client.ask("GET", url, request), request.where)
        for upload in listed.findall("{*}Upload"):
            yield upload.findtext("{*}Key", ""), upload.findtext("{*}UploadId", "")
        key_marker = listed.findtext("{*}NextKeyMarker")
        if not key_marker or listed.findtext("{*}IsTruncated") != "true":
            return
        markers = {"key-marker": key_marker, "upload-id-marker": listed.findtext("{*}NextUploadIdMarker", "")}


def _abort(client: GcsClient, key: str, upload_id: str) -> None:
    request = client.request(client.name(key), "storage.multipartUploads.abort")
    with contextlib.suppress(ObjectMissingError):  # the upload has ended already
        client.ask("DELETE", client.xml_url(key, uploadId=upload_id), request)


def _xml(answer: requests.Response, where: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(answer.content)
    except ElementTree.ParseError:
        if answer.content.startswith(b"{"):
            reason = "it answers a request of the XML API in JSON, so that it knows no uploads in parts"
            raise StorageError.refused(where, reason) from None
        raise TransientError(FOREIGN_ANSWER) from None


def _completion(etags: dict[int, str]) -> bytes:
    root = ElementTree.Element("CompleteMultipartUpload")
    for index in sorted(etags):
        part = ElementTree.SubElement(root, "Part")
        ElementTree.SubElement(part, "PartNumber").text = str(index + 1)
        ElementTree.SubElement(part, "ETag").text = etags[index]
    return ElementTree.tostring(root)


def _stored_crc32c(answer: requests.Response) -> str | None:
    told = re.search(r"crc32c=([A-Za-z0-9+/=]+)", answer.headers.get("x-goog-hash", ""))
    return told.group(1) if told else None
