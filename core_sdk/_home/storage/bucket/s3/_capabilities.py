"""The features of an S3 server that servers other than Amazon's may lack."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import google_crc32c

from core_sdk._home.storage.bucket._bucket import TransientError

Parameters = dict[str, Any]

_NOT_KNOWN = ("InvalidArgument", "NotImplemented")


class Capabilities:
    """The features that a server is believed to have: all of S3's, until an answer of the server shows otherwise.

    The retry of a refused request does without the missing feature. Backblaze B2 refuses every checksum header of S3,
    by name. Other servers ignore these headers, and do not check. All servers know Content-MD5, which takes more CPU
    time.
    """

    def __init__(self) -> None:
        self.checks_crc32c = True
        self._takes_preconditions = True

    def for_content(self, content: bytes) -> Parameters:
        """Returns the parameters by which the server notices content that was damaged on its way."""
        if self.checks_crc32c:
            return {"ChecksumCRC32C": in_base64(google_crc32c.value(content))}
        return {"ContentMD5": base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()}

    def for_large_object(self) -> Parameters:
        """Returns the parameters that make the server keep the checksum of the whole, not of the parts' checksums."""
        return {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"} if self.checks_crc32c else {}

    def for_reading(self) -> Parameters:
        return {"ChecksumMode": "ENABLED"} if self.checks_crc32c else {}

    def for_preconditions(self, if_absent: bool, if_version: str | None) -> Parameters:
        if not self._takes_preconditions:
            return {}
        absent = {"IfNoneMatch": "*"} if if_absent else {}
        return absent if if_version is None else absent | {"IfMatch": f'"{if_version}"'}

    def check_arrived(self, content: bytes, answer: Mapping[str, Any]) -> None:
        """Raises `TransientError` if the server has computed a different checksum from ours."""
        if not self.checks_crc32c:
            return
        found = answer.get("ChecksumCRC32C")
        if found is None:
            self.checks_crc32c = False
        elif found != in_base64(google_crc32c.value(content)):
            raise TransientError("the content was damaged on its way")

    def heed(self, told: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        """Raises `TransientError` if the server has refused a feature, which the retry then does without."""
        code, header = told.get("Code"), re.search(r"x-amz-(sdk-)?checksum[a-z0-9-]*", str(told.get("Message", "")))
        if code in _NOT_KNOWN and header and self.checks_crc32c:
            self.checks_crc32c = False
            raise TransientError(f"the server does not take {header.group()}: next time without") from None
        if code == "NotImplemented" and parameters.keys() & {"IfNoneMatch", "IfMatch"}:
            self._takes_preconditions = False
            raise TransientError("the server knows no preconditions: next time without") from None


def in_base64(crc32c: int) -> str:
    """Returns a CRC-32C as S3 writes it: the base64 of its four bytes."""
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def crc32c_of(answer: Mapping[str, Any]) -> str | None:
    """Returns the checksum of a whole object from an answer about it, as in `FileEntry`; None if there is none."""
    found = answer.get("ChecksumCRC32C")
    # For an object that was uploaded in parts, it may be the checksum of the parts' checksums: "…-7".
    came_in_parts = "-" in str(answer.get("ETag", ""))
    if not isinstance(found, str) or "-" in found:
        return None
    if answer.get("ChecksumType", None if came_in_parts else "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return base64.b64decode(found).hex()
