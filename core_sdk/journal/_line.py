"""One record as one checksummed line, and back."""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c
import msgspec

from core_sdk.records import Record

_crc32c = google_crc32c.value
_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Record] = msgspec.json.Decoder(Record).decode
_PREFIX_SIZE = len("00000000 ")


def encode_line(record: Record) -> bytes:
    body = _encode(record)
    return b"%08x %b\n" % (_crc32c(body), body)


def decode_line(line: bytes, *, verify: bool = True) -> Record:
    """`line` is without its newline. Raises `ValueError` with the reason if it is not what `encode_line` wrote.

    Without `verify` its checksum is not looked at.
    """
    body = line[_PREFIX_SIZE:]
    if verify and line[:_PREFIX_SIZE] != b"%08x " % _crc32c(body):
        raise ValueError("has a wrong checksum")
    try:
        return _decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"is of a kind that this version does not know ({error})") from error
