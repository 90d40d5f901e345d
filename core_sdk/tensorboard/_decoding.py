"""Decodes the media of TensorBoard's events, as `SummaryWriter`s write them: images, audio, histograms and texts.

`_encoding` names the messages and their fields. An event comes from a file that any program may have written, so
nothing is believed: what is no event, or has values that make no sense, is a `ValueError` or is left out.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from core_sdk.records import EXTENSIONS, MediaFile

_Fields = Mapping[int, Sequence[int | bytes]]

_VARINT, _SIZED = 0, 2
_SIZES = {1: 8, 5: 4}
"""The sizes of the other encodings."""
_MAX_VARINT_BYTES = 10
_MAX_BINS = 1024
_MAX_TAG_BYTES = 1024
_SUFFIX_OF_TEXTS = "/text_summary"
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
"""The types of images, by their first bytes."""


class EventMedium(NamedTuple):
    """A value of an event with its content."""

    wall_time: float
    step: int
    tag: str
    file: MediaFile
    content: bytes


def media_of_event(event: bytes) -> list[EventMedium]:
    """Returns the media of an event. Raises `ValueError` for what is no event."""
    fields = _fields(event)
    found = []
    for summary in _parts(fields, 5):
        for value in _parts(_fields(summary), 1):
            of_value = _fields(value)
            if (medium := _medium(of_value)) is not None:
                file, content = medium
                wall_time, step = _double(fields, 1), _signed(_integer(fields, 2))
                if not math.isfinite(wall_time):
                    raise ValueError("the event has no time")
                tag = _bytes(of_value, 1)[:_MAX_TAG_BYTES].decode(errors="replace")
                tag = tag.removesuffix(_SUFFIX_OF_TEXTS) if file.kind == "text" else tag
                found.append(EventMedium(wall_time, step, tag, file, content))
    return found


def _medium(value: _Fields) -> tuple[MediaFile, bytes] | None:
    """Returns a value of a summary as a file; None for a scalar, and for what has no form as a file."""
    if 4 in value:
        return _image(_fields(_bytes(value, 4)))
    if 5 in value:
        return _histogram(_fields(_bytes(value, 5)))
    if 6 in value:
        return _audio(_fields(_bytes(value, 6)))
    if 8 in value and _plugin(value) == b"text":
        texts = _parts(_fields(_bytes(value, 8)), 8)
        return _file("text", "text/plain", b"\n\n".join(texts).decode(errors="replace").encode())
    return None


def _image(image: _Fields) -> tuple[MediaFile, bytes] | None:
    content = _bytes(image, 4)
    media_type = next((kind for magic, kind in _IMAGES.items() if content.startswith(magic)), None)
    if media_type is None:
        return None
    width, height = _integer(image, 2) or None, _integer(image, 1) or None
    return _file("image", media_type, content, width=width, height=height)


def _audio(audio: _Fields) -> tuple[MediaFile, bytes] | None:
    media_type = _bytes(audio, 5).decode(errors="replace") or "audio/wav"
    if not media_type.startswith("audio/") or media_type not in EXTENSIONS:
        return None
    rate = _float(audio, 1)
    return _file("audio", media_type, _bytes(audio, 4), duration_s=_integer(audio, 3) / rate if rate > 0 else None)


def _histogram(histogram: _Fields) -> tuple[MediaFile, bytes] | None:
    """Returns a histogram without the empty bins at its ends, of which TensorBoard's have hundreds."""
    limits, counts = _doubles(histogram, 6), _doubles(histogram, 7)
    if len(limits) != len(counts) or not math.isfinite(sum(counts)):
        return None
    filled = [index for index, count in enumerate(counts) if count > 0]
    if not filled:
        return None
    first, last = filled[0], filled[-1]
    low, high = _double(histogram, 1), _double(histogram, 2)
    edges = [limits[first - 1] if first else low, *limits[first : last + 1]]
    # No value is outside of the smallest and the largest one.
    edges[0] = max(edges[0], low) if low < edges[1] else edges[0]
    edges[-1] = min(edges[-1], high) if high > edges[-2] else edges[-1]
    if not all(map(math.isfinite, edges)) or any(not left < right for left, right in pairwise(edges)):
        return None
    counts = counts[first : last + 1]
    width = math.ceil(len(counts) / _MAX_BINS)
    value = {
        "counts": [sum(counts[start : start + width]) for start in range(0, len(counts), width)],
        "edges": [*edges[:-1:width], edges[-1]],
        "num_not_finite": 0,
    }
    return _file("histogram", "application/json", msgspec.json.encode(value))


def _file(
    kind: str,
    media_type: str,
    content: bytes,
    *,
    width: int | None = None,
    height: int | None = None,
    duration_s: float | None = None,
) -> tuple[MediaFile, bytes]:
    file = MediaFile(
        kind=kind,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        media_type=media_type,
        width=width,
        height=height,
        duration_s=duration_s,
    )
    return file, content


def _plugin(value: _Fields) -> bytes:
    """Returns the name of the plugin that shows a value."""
    return b"".join(
        _bytes(_fields(plugin), 1) for metadata in _parts(value, 9) for plugin in _parts(_fields(metadata), 1)
    )


def _fields(message: bytes) -> _Fields:
    """Returns the values of a message by the numbers of their fields. Raises `ValueError` if it is malformed."""
    fields: dict[int, list[int | bytes]] = {}
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        value: int | bytes
        encoding = key & 7
        if encoding == _VARINT:
            value, position = _varint(message, position)
        else:
            if encoding == _SIZED:
                size, position = _varint(message, position)
            elif encoding in _SIZES:
                size = _SIZES[encoding]
            else:
                raise ValueError(f"the message has a field of encoding {encoding}")
            value, position = message[position : position + size], position + size
        if position > len(message):
            raise ValueError("the message ends within a field")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    if position < len(message) and message[position] < 0x80:  # as most are, in files with millions of scalars
        return message[position], position + 1
    number = 0
    for shift, byte in enumerate(message[position : position + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, position + shift + 1
    raise ValueError("the message has no end of a number")


def _parts(fields: _Fields, number: int) -> Iterator[bytes]:
    for value in fields.get(number, ()):
        if isinstance(value, int):
            raise ValueError(f"field {number} of the message is a number")
        yield value


def _bytes(fields: _Fields, number: int) -> bytes:
    return b"".join(list(_parts(fields, number))[-1:])


def _integer(fields: _Fields, number: int) -> int:
    value = fields.get(number, (0,))[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} of the message is no integer")
    return value


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _double(fields: _Fields, number: int) -> float:
    return (_doubles(fields, number) or [0.0])[-1]


def _doubles(fields: _Fields, number: int) -> list[float]:
    """Returns numbers that stand one after the other, or in fields of their own."""
    packed = b"".join(_parts(fields, number))
    if len(packed) % 8:
        raise ValueError(f"field {number} of the message is torn")
    return list(struct.unpack(f"<{len(packed) // 8}d", packed))


def _float(fields: _Fields, number: int) -> float:
    packed = _bytes(fields, number)
    if len(packed) not in (0, 4):
        raise ValueError(f"field {number} of the message is torn")
    return float(struct.unpack("<f", packed)[0]) if packed else 0.0
