"""What an S3 server can do beyond storing objects: other servers than Amazon's differ in this."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import google_crc32c

from core_sdk.storage.bucket._bucket import TransientError
from core_sdk.storage.bucket.s3._errors import S3ErrorResponse

Parameters = dict[str, Any]

_NOT_KNOWN = ("InvalidArgument", "NotImplemented")


class Capabilities:
    """All of S3's, until the server's answers say otherwise. Then a request goes another way when it is tried again.

    Backblaze B2 refuses every header of S3's checksums, by name. Others pass over them, and do not check. All know
    Content-MD5, which takes the processor longer.
    """

    def __init__(self) -> None:
        self.checks_crc32c = True
        self._takes_preconditions = True

    def for_content(self, content: bytes) -> Parameters:
        """Lets the server notice content that was damaged on its way."""
        if self.checks_crc32c:
            return {"ChecksumCRC32C": in_base64(google_crc32c.value(content))}
        return {"ContentMD5": content_md5(content)}

    def for_large_object(self) -> Parameters:
        """Makes the server keep the checksum of the whole, rather than one of its parts' checksums."""
        return {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"} if self.checks_crc32c else {}

    def for_reading(self) -> Parameters:
        return {"ChecksumMode": "ENABLED"} if self.checks_crc32c else {}

    def for_preconditions(self, if_absent: bool, if_version: str | None) -> Parameters:
        if not self._takes_preconditions:
            return {}
        absent = {"IfNoneMatch": "*"} if if_absent else {}
        return absent if if_version is None else absent | {"IfMatch": f'"{if_version}"'}

    def check_arrived(self, content: bytes, answer: Mapping[str, Any]) -> None:
        """Raises `TransientError` if the server has read another checksum than was sent."""
        if not self.checks_crc32c:
            return
        found = answer.get("ChecksumCRC32C")
        if found is None:
            self.checks_crc32c = False
        elif found != in_base64(google_crc32c.value(content)):
            raise TransientError("the content was damaged on its way")

    def heed(self, refused: S3ErrorResponse, parameters: Mapping[str, Any]) -> None:
        """Raises `TransientError` if a refusal is for what can be left out."""
        if refused.code in _NOT_KNOWN and refused.named_header and self.checks_crc32c:
            self.checks_crc32c = False
            raise TransientError(f"the server does not take {refused.named_header}: next time without") from None
        if refused.code == "NotImplemented" and parameters.keys() & {"IfNoneMatch", "IfMatch"}:
            self._takes_preconditions = False
            raise TransientError("the server knows no preconditions: next time without") from None


def in_base64(crc32c: int) -> str:
    """As S3 writes it."""
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def crc32c_of(answer: Mapping[str, Any]) -> str | None:
    """The checksum of a whole object in an answer about it, as in `FileEntry`."""
    found = answer.get("ChecksumCRC32C")
    # Of an object that came in parts it may be that of the parts' checksums: "…-7".
    came_in_parts = "-" in str(answer.get("ETag", ""))
    if not isinstance(found, str) or "-" in found:
        return None
    if answer.get("ChecksumType", None if came_in_parts else "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return base64.b64decode(found).hex()


def content_md5(content: bytes) -> str:
    """The value of a Content-MD5 header."""
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
