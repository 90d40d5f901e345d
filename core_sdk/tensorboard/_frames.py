"""The frames in which messages stand in an event file.

A frame is the size (8 bytes), the size's checksum, the message, the message's checksum. A checksum is a CRC-32C,
rotated and shifted so that checksums of checksums stay sound. All numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

import google_crc32c

_SIZE_BYTES = 8
_CHECKSUM_BYTES = 4


def framed(message: bytes) -> bytes:
    """Returns the message in its frame."""
    size = struct.pack("<Q", len(message))
    return size + _checksum(size) + message + _checksum(message)


def next_message(file: BinaryIO, end: int, max_bytes: int) -> bytes | None:
    """Returns the next message; None at the `end` of the file, and where the rest of it is not written yet.

    It is empty where it is damaged, or larger than `max_bytes`. Raises `ValueError` if its size is damaged, since
    nobody knows then where the next one begins.
    """
    size, checksum = file.read(_SIZE_BYTES), file.read(_CHECKSUM_BYTES)
    if len(checksum) < _CHECKSUM_BYTES:
        return None
    if _checksum(size) != checksum:
        raise ValueError("the size of an event is damaged")
    (size_bytes,) = struct.unpack("<Q", size)
    if file.tell() + size_bytes + _CHECKSUM_BYTES > end:
        return None
    if size_bytes > max_bytes:
        file.seek(size_bytes + _CHECKSUM_BYTES, os.SEEK_CUR)
        return b""
    message, checksum = file.read(size_bytes), file.read(_CHECKSUM_BYTES)
    return message if _checksum(message) == checksum else b""


def _checksum(data: bytes) -> bytes:
    crc = int(google_crc32c.value(data))
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
