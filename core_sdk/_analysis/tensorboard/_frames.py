"""The frames in which messages stand in an event file.

A frame is the size (8 bytes), the size's checksum, the message, the message's checksum. A checksum is a CRC-32C,
rotated and shifted so that checksums of checksums stay sound. All numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c

_SIZE_BYTES = 8
_CHECKSUM_BYTES = 4
_SIZE = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_crc32c = google_crc32c.value
_MAX_KNOWN_HEADS = 4096


def framed(message: bytes) -> bytes:
    """Returns the message in its frame."""
    size = _SIZE.pack(len(message))
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
    (size_bytes,) = _SIZE.unpack(size)
    if file.tell() + size_bytes + _CHECKSUM_BYTES > end:
        return None
    if size_bytes > max_bytes:
        file.seek(size_bytes + _CHECKSUM_BYTES, os.SEEK_CUR)
        return b""
    message, checksum = file.read(size_bytes), file.read(_CHECKSUM_BYTES)
    return message if _checksum(message) == checksum else b""


def all_messages(file: BinaryIO, max_bytes: int, block_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yields all messages as `next_message` returns them, in a quarter of its time.

    Raises `ValueError`, which says where, if a size is damaged, or if the file ends within a frame.
    """
    block, at, begin = b"", 0, 0
    head_bytes = _SIZE_BYTES + _CHECKSUM_BYTES
    sizes: dict[bytes, int] = {}  # by the heads that were sound: most events have one of a few sizes
    while True:
        if len(block) - at < head_bytes:
            begin, block, at = begin + at, block[at:] + file.read(block_bytes), 0
            if len(block) < head_bytes:
                break
        head = block[at : at + head_bytes]
        if (size_bytes := sizes.get(head)) is None:
            if _checksum(head[:_SIZE_BYTES]) != head[_SIZE_BYTES:]:
                raise ValueError(f"the size of an event is damaged at byte {begin + at}")
            (size_bytes,) = _SIZE.unpack_from(head)
            sizes[head] = size_bytes
        end = at + head_bytes + size_bytes
        if end + _CHECKSUM_BYTES > len(block):
            if size_bytes > max_bytes:
                begin, at = begin + end + _CHECKSUM_BYTES, 0
                if begin > os.fstat(file.fileno()).st_size:
                    raise ValueError(f"it ends within an event of {size_bytes} bytes")
                file.seek(begin)
                block = b""
                yield b""
                continue
            begin, block, at = begin + at, block[at:] + file.read(max(block_bytes, size_bytes)), 0
            end = head_bytes + size_bytes
            if end + _CHECKSUM_BYTES > len(block):
                break
        message = block[at + head_bytes : end]
        yield message if _checksum(message) == block[end : end + _CHECKSUM_BYTES] else b""
        at = end + _CHECKSUM_BYTES
    if len(block) > at:
        raise ValueError(f"it ends within an event, at byte {begin + at}")


def _checksum(data: bytes) -> bytes:
    crc = _crc32c(data)
    return _CHECKSUM.pack(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
