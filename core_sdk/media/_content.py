"""Handles the content of every kind of media: bounds its size, names it by its hash, reads it from files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.environment import max_media_bytes
from core_sdk._ground.records import MediaFile, check_text
from core_sdk.errors import MediaError, MediaTooLargeError

Source = str | os.PathLike[str] | bytes
"""A file, by its path, or the content of one."""


def described(
    kind: str,
    media_type: str,
    content: bytes,
    caption: str,
    *,
    width: int | None = None,
    height: int | None = None,
    duration_s: float | None = None,
) -> MediaFile:
    """Returns the description of a content. Raises `MediaTooLargeError`."""
    check_size(kind, len(content))
    return MediaFile(
        kind=kind,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        media_type=media_type,
        caption=check_text("the caption", caption),
        width=width,
        height=height,
        duration_s=duration_s,
    )


def check_size(kind: str, size_bytes: int) -> None:
    if size_bytes > (limit := max_media_bytes()):
        raise MediaTooLargeError(kind, size_bytes, limit)


def is_source(data: object) -> bool:
    return isinstance(data, (str, os.PathLike, bytes, bytearray, memoryview))


def read_source(kind: str, source: Any) -> bytes:
    """Returns the content of a file, or bytes as they are. Raises `MediaTooLargeError` before it reads too much."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    path = Path(source)
    check_size(kind, path.stat().st_size)
    return path.read_bytes()


def encode_json(kind: str, value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise MediaError(kind, f"cannot be kept: {error}") from error
