"""Ranges of objects on their way out of S3."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from core_sdk.storage.bucket._bucket import ObjectMissingError, Sink, TransientError
from core_sdk.storage.bucket.s3._client import S3Client
from core_sdk.storage.bucket.s3._errors import failures_told, not_from_s3

_PIECE_BYTES = 1 << 20


def read_range(requests: S3Client, name: str, start: int, size_bytes: int, sink: Sink) -> None:
    """As `Bucket.read`."""
    answer = requests.of_object("GetObject", name, Range=f"bytes={start}-{start + size_bytes - 1}")
    with contextlib.closing(answer["Body"]) as body:
        _check_range(answer, requests.where(name), start, size_bytes)
        rest = size_bytes
        while rest:
            with failures_told(requests.told("GetObject", name)):
                piece = body.read(min(_PIECE_BYTES, rest))
            if not piece:
                raise TransientError("GetObject: the answer broke off")
            rest -= len(piece)
            sink(piece)


def _check_range(answer: Mapping[str, Any], where: str, start: int, size_bytes: int) -> None:
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", str(answer.get("ContentRange", "")))
    if match is None:
        raise not_from_s3("GetObject")
    first, last, whole = map(int, match.groups())
    if whole < start + size_bytes:
        raise ObjectMissingError(where)
    if (first, last, answer.get("ContentLength")) != (start, start + size_bytes - 1, size_bytes):
        raise TransientError("GetObject was answered with another range than was asked for")
