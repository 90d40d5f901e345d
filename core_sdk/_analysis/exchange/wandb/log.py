"""The log of a run: records in LevelDB's format, behind a header of wandb's own.

The file consists of blocks. A record is one part or several, none of which crosses the end of a block. A part is its
checksum, its size, its kind, and its bytes; a block whose end has no room for that is filled with zeros.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from core_sdk._ground.files import reading

_BLOCK_BYTES = 32 << 10
_HEADER = b":W&B"
_HEADER_BYTES = 7
_PART = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_CRC_OF_KINDS = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}


def read_log(path: Path, losses: list[str]) -> Iterator[bytes]:
    """Yields the records. Behind a damaged one, the rest of its block is left out, and added to `losses`.

    Raises `OSError`, or `ValueError` for a file that is no such log.
    """
    num_damaged, is_torn = 0, False
    parts: list[bytes] | None = None
    with reading(path) as file:
        if not file.read(_HEADER_BYTES).startswith(_HEADER):
            raise ValueError("it is no log of wandb's")
        room = _BLOCK_BYTES - _HEADER_BYTES
        while block := file.read(room):
            at = 0
            while at + _PART.size <= len(block):
                checksum, size_bytes, kind = _PART.unpack_from(block, at)
                end = at + _PART.size + size_bytes
                if end > len(block) and len(block) < room:
                    break
                part = block[at + _PART.size : end]
                if kind not in _CRC_OF_KINDS or zlib.crc32(part, _CRC_OF_KINDS[kind]) != checksum:
                    num_damaged += 1
                    at, parts = len(block), None
                    break
                at = end
                if kind in (_FULL, _FIRST):
                    parts = []
                if parts is None:  # its beginning was damaged
                    continue
                parts.append(part)
                if kind in (_FULL, _LAST):
                    yield b"".join(parts)
                    parts = None
            is_torn = len(block) < room and at < len(block)
            room = _BLOCK_BYTES
    if is_torn or parts is not None:
        losses.append(f"{path.name} ends within a record")
    if num_damaged:
        losses.append(f"{num_damaged} blocks of {path.name} are damaged, and were left out from there on")
