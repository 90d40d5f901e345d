"""Uploads large objects to S3 in parts."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import ObjectMissingError, PartedUpload, TransientError, part_bytes
from core_sdk._home.storage.bucket._refusals import FOREIGN_ANSWER
from core_sdk._home.storage.bucket.s3._capabilities import crc32c_of, in_base64
from core_sdk._home.storage.bucket.s3._client import S3Client

_MOST_PARTS = 10_000


class S3PartedUpload(PartedUpload):
    """S3's multipart upload.

    `put_part` and `complete` raise `ObjectMissingError` if the upload has been aborted.
    """

    def __init__(self, client: S3Client, name: str, entry: FileEntry, least_part_bytes: int) -> None:
        super().__init__(entry.size_bytes, part_bytes(entry.size_bytes, _MOST_PARTS, least_part_bytes))
        self._client = client
        self._name = name
        self._entry = entry
        answer = client.of_object("CreateMultipartUpload", name, **client.capabilities.for_large_object())
        if "UploadId" not in answer:
            raise TransientError(FOREIGN_ANSWER)
        self._id: str = answer["UploadId"]
        self._is_checked_as_a_whole = answer.get("ChecksumType") == "FULL_OBJECT"
        self._parts: dict[int, dict[str, Any]] = {}

    def put_part(self, index: int, content: bytes) -> None:
        capabilities = self._client.capabilities
        answer = self._ask("UploadPart", PartNumber=index + 1, Body=content, **capabilities.for_content(content))
        capabilities.check_arrived(content, answer)
        self._note(index, answer)

    def _complete(self) -> None:
        parts = [self._parts[index] for index in sorted(self._parts)]
        is_checked = self._is_checked_as_a_whole and all("ChecksumCRC32C" in part for part in parts)
        try:
            self._send_completion(parts, is_checked)
        except ObjectMissingError:
            # An earlier request, whose answer was lost, may have completed the upload.
            self._check_stored(is_checked, etag_of_parts(parts))
        else:
            self._check_stored(is_checked, None)

    def _abort(self) -> None:
        with contextlib.suppress(ObjectMissingError):  # the upload has ended already
            self._ask("AbortMultipartUpload")

    def _send_completion(self, parts: list[dict[str, Any]], is_checked: bool) -> None:
        whole = {"ChecksumCRC32C": in_base64(int(self._entry.crc32c, 16)), "ChecksumType": "FULL_OBJECT"}
        answer = self._ask("CompleteMultipartUpload", MultipartUpload={"Parts": parts}, **(whole if is_checked else {}))
        if "ETag" not in answer:
            raise TransientError(FOREIGN_ANSWER)

    def _check_stored(self, is_checked: bool, expected_etag: str | None) -> None:
        """Raises unless the object exists and is whole. With `expected_etag` it must have that ETag or our checksum."""
        found = self._client.head(self._name)
        crc32c = crc32c_of(found) if is_checked else None
        is_ours = expected_etag in (None, _bare(found.get("ETag"))) or crc32c == self._entry.crc32c
        if not is_ours:
            raise ObjectMissingError(self._client.where(self._name))
        if found.get("ContentLength") != self._entry.size_bytes or crc32c not in (None, self._entry.crc32c):
            raise TransientError("the store does not hold what was sent")

    def _note(self, index: int, answer: dict[str, Any]) -> None:
        if "ETag" not in answer:
            raise TransientError(FOREIGN_ANSWER)
        part = {"PartNumber": index + 1, "ETag": answer["ETag"]}
        if "ChecksumCRC32C" in answer:
            part["ChecksumCRC32C"] = answer["ChecksumCRC32C"]
        self._parts[index] = part

    def _ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        return self._client.of_object(operation, self._name, UploadId=self._id, **parameters)


def etag_of_parts(parts: list[dict[str, Any]]) -> str:
    """Returns the ETag that S3 gives to an object made of these parts.

    Returns "" if the parts' ETags are not MD5s, as with some kinds of encryption.
    """
    etags = [_bare(part["ETag"]) for part in parts]
    try:
        digests = b"".join(bytes.fromhex(etag) for etag in etags)
    except ValueError:
        return ""
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"


def _bare(etag: object) -> str:
    return str(etag).strip('"')
