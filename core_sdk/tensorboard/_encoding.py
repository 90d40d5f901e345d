"""Encodes TensorBoard's events as bytes: `tensorflow.Event` messages, each in a TFRecord frame.

The messages are small and their fields never change, so they are spelled out by hand:

    Event       1 wall_time: double   2 step: int64   3 file_version: string   5 summary: Summary   7 session_log
    Summary     1 value: Value
    Value       1 tag: string   2 simple_value: float   4 image   5 histo   6 audio   8 tensor   9 metadata
    SessionLog  1 status: enum (1 is START)

A frame is the size (8 bytes), the size's checksum, the message, the message's checksum; a checksum is a CRC-32C,
rotated and shifted so that checksums of checksums stay sound. All numbers are little-endian.

Fields may stand in any order. Our messages begin with the part that repeats (a curve's name), so that its checksum is
computed once and continued over the few bytes that change. That loop is in Python on purpose: google_crc32c releases
the GIL at every call, and each time a training thread in this process would have to wait for the GIL.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from itertools import pairwise

import google_crc32c

_pack_size = struct.Struct("<Q").pack
_pack_checksum = struct.Struct("<I").pack
_pack_double = struct.Struct("<d").pack
_pack_float = struct.Struct("<f").pack

# A field's key: its number and, in the lowest three bits, its encoding.
_WALL_TIME = bytes([1 << 3 | 1])
_STEP = bytes([2 << 3 | 0])
_FILE_VERSION = bytes([3 << 3 | 2])
_SUMMARY = bytes([5 << 3 | 2])
_SESSION_LOG = bytes([7 << 3 | 2])
_VALUE = bytes([1 << 3 | 2])
_TAG = bytes([1 << 3 | 2])
_SIMPLE_VALUE = bytes([2 << 3 | 5])
_STATUS = bytes([1 << 3 | 0])

_FLOAT_BYTES = 4
_DT_STRING = 7


def file_version(wall_time: float) -> bytes:
    """Returns the first event of every file."""
    return _framed(_FILE_VERSION + _sized(b"brain.Event:2"), _when(wall_time, 0))


def session_start(wall_time: float, step: int) -> bytes:
    """Returns the event that tells TensorBoard to discard what earlier files hold from `step` on."""
    return _framed(_SESSION_LOG + _sized(_STATUS + b"\x01"), _when(wall_time, step))


def scalar(wall_time: float, step: int, tag: str, value: float) -> bytes:
    """Returns a point of a curve. TensorBoard keeps 32-bit floats: a larger value becomes an infinity."""
    return _framed(_summary_before_value(tag), _float(value) + _when(wall_time, step))


def image(wall_time: float, step: int, tag: str, content: bytes, width: int, height: int) -> bytes:
    """Returns an image, which is a PNG, a JPEG or a GIF."""
    return _media(wall_time, step, tag, 4, _number(1, height) + _number(2, width) + _bytes(4, content))


def audio(wall_time: float, step: int, tag: str, content: bytes, media_type: str) -> bytes:
    return _media(wall_time, step, tag, 6, _bytes(4, content) + _bytes(5, media_type.encode()))


def text(wall_time: float, step: int, tag: str, content: bytes) -> bytes:
    """Returns a text, which TensorBoard shows as Markdown: a tensor of one string, for the plugin of texts."""
    tensor = _number(1, _DT_STRING) + _bytes(2, _bytes(2, _number(1, 1))) + _bytes(8, content)
    return _media(wall_time, step, tag, 8, tensor, _bytes(9, _bytes(1, _bytes(1, b"text"))))


def histogram(wall_time: float, step: int, tag: str, counts: Sequence[float], edges: Sequence[float]) -> bytes:
    """Returns a histogram. The sums are those of values in the middle of their bins."""
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    total = sum(count * middle for count, middle in zip(counts, middles, strict=True))
    squares = sum(count * middle * middle for count, middle in zip(counts, middles, strict=True))
    numbers = (edges[0], edges[-1], sum(counts), total, squares)
    content = b"".join(bytes([field << 3 | 1]) + _pack_double(value) for field, value in enumerate(numbers, start=1))
    limits, sizes = (b"".join(map(_pack_double, column)) for column in (edges[1:], counts))
    return _media(wall_time, step, tag, 5, content + _bytes(6, limits) + _bytes(7, sizes))


def _media(wall_time: float, step: int, tag: str, field: int, content: bytes, metadata: bytes = b"") -> bytes:
    summary = _SUMMARY + _sized(_VALUE + _sized(_TAG + _sized(tag.encode()) + _bytes(field, content) + metadata))
    message = summary + _when(wall_time, step)
    return _frame_head(len(message)) + message + masked_checksum(message)


def masked_checksum(data: bytes) -> bytes:
    """Returns the checksum of a size or a message as a frame has it."""
    return _masked(int(google_crc32c.value(data)) ^ 0xFFFFFFFF)


def _bytes(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _sized(data)


def _number(field: int, number: int) -> bytes:
    return bytes([field << 3 | 0]) + _varint(number)


def _when(wall_time: float, step: int) -> bytes:
    return _STEP + _varint(step) + _WALL_TIME + _pack_double(wall_time)


# These are cached, since a training has few names and reports each of them often.
@functools.lru_cache(maxsize=1024)
def _summary_before_value(tag: str) -> bytes:
    point = _TAG + _sized(tag.encode()) + _SIMPLE_VALUE
    value = _VALUE + _varint(len(point) + _FLOAT_BYTES) + point
    return _SUMMARY + _varint(len(value) + _FLOAT_BYTES) + value


def _framed(repeating: bytes, changing: bytes) -> bytes:
    checksum = _checksum(repeating)
    for byte in changing:
        checksum = _CHECKSUM_STEPS[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return _frame_head(len(repeating) + len(changing)) + repeating + changing + _masked(checksum)


@functools.lru_cache(maxsize=1024)
def _frame_head(size_bytes: int) -> bytes:
    size = _pack_size(size_bytes)
    return size + _masked(_checksum(size))


@functools.lru_cache(maxsize=1024)
def _checksum(data: bytes) -> int:
    """Returns the CRC without its last inversion, so that it can be continued."""
    return int(google_crc32c.value(data)) ^ 0xFFFFFFFF


def _masked(checksum: int) -> bytes:
    checksum ^= 0xFFFFFFFF
    return _pack_checksum(((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _checksum_step(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CHECKSUM_STEPS = [_checksum_step(byte) for byte in range(256)]


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF  # a negative int64 is its two's complement
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _float(value: float) -> bytes:
    try:
        return _pack_float(value)
    except OverflowError:
        return _pack_float(math.copysign(math.inf, value))
