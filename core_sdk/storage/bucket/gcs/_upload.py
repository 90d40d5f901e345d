"""Large objects in parts, in parallel, to Google's storage: the XML API's multipart upload.

https://cloud.google.com/storage/docs/multipart-uploads
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import google_crc32c
import requests

from core_sdk.errors import StorageRefusedError
from core_sdk.records import FileEntry
from core_sdk.storage.bucket._bucket import ObjectMissingError, PartedUpload, TransientError, part_bytes
from core_sdk.storage.bucket.gcs import _objects as objects
from core_sdk.storage.bucket.gcs._client import GcsClient, Pieces, base64_of
from core_sdk.storage.bucket.gcs._errors import NOT_THE_STORE, Purpose, failure, refusal

_MOST_PARTS = 10_000
# What servers answer that know nothing of such uploads: the real one never does.
_UNKNOWN = frozenset({400, 405, 501})
_GONE = 404


def begin_parts(wire: GcsClient, name: str, entry: FileEntry) -> GcsPartedUpload | None:
    """None where the server knows no uploads in parts."""
    purpose = wire.purpose(name, "storage.multipartUploads.create")
    url = wire.xml_url(wire.key(name), uploads="")
    answer = wire.ask("POST", url, purpose, headers={"Content-Type": "application/octet-stream"}, accept=_UNKNOWN)
    if not _is_known(answer, purpose):
        return None
    upload_id = _xml(answer, "InitiateMultipartUploadResult").findtext("{*}UploadId")
    if not upload_id:
        raise TransientError("the store named no upload")
    return GcsPartedUpload(wire, name, entry, upload_id)


def abort_parts(wire: GcsClient, under: str) -> int:
    """Removes the parts of all uploads under names that begin with `under`; says of how many."""
    aborted = 0
    for key, upload_id in list(_uploads(wire, under)):
        _abort(wire, key, upload_id)
        aborted += 1
    return aborted


class GcsPartedUpload(PartedUpload):
    """Safe in threads."""

    def __init__(self, wire: GcsClient, name: str, entry: FileEntry, upload_id: str) -> None:
        self.part_bytes = part_bytes(entry.size_bytes, _MOST_PARTS)
        self._wire = wire
        self._name = name
        self._entry = entry
        self._upload_id = upload_id
        self._purpose = wire.purpose(name, "storage.multipartUploads.create")
        self._etags: dict[int, str] = {}
        self._is_complete = False

    def put_part(self, index: int, content: bytes) -> None:
        crc32c = base64_of(f"{google_crc32c.value(content):08x}")
        url = self._url(partNumber=index + 1, uploadId=self._upload_id)
        headers = {"x-goog-hash": f"crc32c={crc32c}"}
        answer = self._wire.ask("PUT", url, self._purpose, headers=headers, body=Pieces(content), accept={_GONE})
        if answer.status_code == _GONE:
            raise self._gone(answer)
        if _stored_crc32c(answer) != crc32c:
            raise TransientError("the store received other bytes than were sent")
        self._etags[index] = answer.headers.get("ETag", "")

    def complete(self) -> None:
        if self._is_complete:
            return
        url = self._url(uploadId=self._upload_id)
        body = _completion(self._etags)
        answer = self._wire.ask("POST", url, self._purpose, body=body, accept={_GONE})
        if answer.status_code == _GONE and not self._is_there():
            raise self._gone(answer)
        if answer.status_code != _GONE:
            _xml(answer, "CompleteMultipartUploadResult")
            self._verify()
        self._is_complete = True

    def abort(self) -> None:
        if not self._is_complete:
            _abort(self._wire, self._wire.key(self._name), self._upload_id)

    def _url(self, **query: str | int) -> str:
        return self._wire.xml_url(self._wire.key(self._name), **query)

    def _gone(self, answer: requests.Response) -> Exception:
        found = refusal(answer)
        if found.code != "NoSuchUpload":
            return failure(found, self._purpose)
        return StorageRefusedError(
            self._purpose.where, "the parts that were sent are gone, and no such object is there"
        )

    def _is_there(self) -> bool:
        """As after a completion whose answer was lost."""
        try:
            found = objects.stat(self._wire, self._name)
        except ObjectMissingError:
            return False
        return (found.size_bytes, found.crc32c) == (self._entry.size_bytes, self._entry.crc32c)

    def _verify(self) -> None:
        found = objects.stat(self._wire, self._name)
        if (found.size_bytes, found.crc32c) != (self._entry.size_bytes, self._entry.crc32c):
            objects.delete(self._wire, self._name, found.version)
            raise TransientError("the store holds other bytes than were sent")


def _uploads(wire: GcsClient, under: str) -> Iterator[tuple[str, str]]:
    """Key and upload id."""
    purpose = wire.purpose(under, "storage.multipartUploads.list")
    markers: dict[str, str] = {}
    while True:
        url = wire.xml_url("", uploads="", prefix=wire.key(under), **markers)
        answer = wire.ask("GET", url, purpose, accept=_UNKNOWN)
        if not _is_known(answer, purpose):
            return
        listed = _xml(answer, "ListMultipartUploadsResult", "ListBucketResult")
        if listed.tag.endswith("ListBucketResult"):
            # One emulator does not know what `uploads` asks for, and lists objects.
            return
        for upload in listed.findall("{*}Upload"):
            yield upload.findtext("{*}Key", ""), upload.findtext("{*}UploadId", "")
        if listed.findtext("{*}IsTruncated") != "true":
            return
        markers = {
            "key-marker": listed.findtext("{*}NextKeyMarker", ""),
            "upload-id-marker": listed.findtext("{*}NextUploadIdMarker", ""),
        }


def _abort(wire: GcsClient, key: str, upload_id: str) -> None:
    purpose = wire.purpose(wire.name(key), "storage.multipartUploads.abort")
    answer = wire.ask("DELETE", wire.xml_url(key, uploadId=upload_id), purpose, accept={_GONE})
    if answer.status_code == _GONE and (found := refusal(answer)).code != "NoSuchUpload":
        raise failure(found, purpose)


def _is_known(answer: requests.Response, purpose: Purpose) -> bool:
    if answer.status_code not in _UNKNOWN:
        return True
    found = refusal(answer)
    # One emulator takes the request for one of the JSON API, which has an uploadType.
    if found.is_page or (found.status == 400 and "uploadType" not in found.message):
        raise failure(found, purpose)
    return False


def _xml(answer: requests.Response, *roots: str) -> ElementTree.Element:
    try:
        element = ElementTree.fromstring(answer.content)
    except ElementTree.ParseError:
        raise TransientError(NOT_THE_STORE) from None
    if element.tag.rpartition("}")[2] not in roots:
        raise TransientError(NOT_THE_STORE)
    return element


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
