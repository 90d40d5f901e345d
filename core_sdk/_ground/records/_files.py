"""A record as a JSON file with a checksum.

The file is one JSON object, whose last member is the CRC-32C of all bytes before it: `{…,"crc32c":"0ba7ff09"}`. A file
without that member, written by a person or another program, is accepted unchecked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import google_crc32c
import msgspec

from core_sdk._ground.decoding import json_decoder

_T = TypeVar("_T")

_MEMBER = b',"crc32c":"'
_END_SIZE = len(_MEMBER) + len('01234567"}')


def encode_file(record: msgspec.Struct) -> bytes:
    """Returns the content of the record's file. The struct must have fields, which the checksum can follow."""
    body = msgspec.json.encode(record).removesuffix(b"}")
    return body + _end(body)


def decode_file(content: bytes, kind: type[_T]) -> _T:
    """Decodes a record. Raises `ValueError`, with the reason, for a damaged file and for another kind of record."""
    body, end = content[:-_END_SIZE], content[-_END_SIZE:]
    if end.startswith(_MEMBER) and end != _end(body):
        raise ValueError("it has a wrong checksum")
    try:
        return json_decoder(kind)(content)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def encode_values(values: Mapping[str, Any]) -> bytes:
    """Returns the content of a file with these JSON values, which are not a record. There must be at least one."""
    body = json.dumps(values, allow_nan=False).encode().removesuffix(b"}")
    return body + _end(body)


def decode_values(content: bytes) -> dict[str, Any]:
    """Decodes the values of `encode_values`. Raises `ValueError`, like `decode_file`."""
    values: dict[str, Any] = decode_file(content, dict[str, Any])
    values.pop("crc32c", None)
    return values


def _end(body: bytes) -> bytes:
    return b'%b%08x"}' % (_MEMBER, google_crc32c.value(body))
