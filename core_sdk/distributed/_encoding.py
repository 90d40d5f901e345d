"""Objects and failures as bytes. Objects are pickled: only for peers that have proved the key."""

from __future__ import annotations

import pickle
import struct
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

Buffer = bytes | bytearray | memoryview

_MAX_TEXT_CHARS = 16_384
_COUNT = struct.Struct("!I")


class Failure(msgspec.Struct, frozen=True):
    """An error of one rank, for the eyes of the others."""

    rank: int
    error_text: str
    traceback_text: str = ""

    @classmethod
    def of(cls, rank: int, error: BaseException) -> Failure:
        error_text = "".join(traceback.format_exception_only(error)).strip()
        traceback_text = "".join(traceback.format_exception(error))
        return cls(rank, _printable(error_text), _printable(traceback_text))


class Part(NamedTuple):
    """What one rank brings to a collective."""

    is_failure: bool
    content: Buffer

    @classmethod
    def of_value(cls, value: object) -> Part:
        """Raises whatever the value's own pickling raises."""
        return cls(False, encode(value))

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> Part:
        return cls(True, msgspec.msgpack.encode(Failure.of(rank, error)))

    def failure(self) -> Failure:
        return msgspec.msgpack.decode(self.content, type=Failure)


def encode(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle  # for functions and classes of the script, seldom sent; slow to import

        return bytes(cloudpickle.dumps(value))


def decode(content: Buffer) -> Any:
    return pickle.loads(content)  # noqa: S301 - the sender has proved the key


def join(contents: Sequence[Buffer]) -> list[Buffer]:
    """Several contents as one, in pieces that need not be copied together."""
    lengths = struct.pack(f"!{len(contents)}Q", *map(len, contents))
    return [_COUNT.pack(len(contents)) + lengths, *contents]


def split(content: Buffer) -> list[memoryview]:
    """The inverse of `join`."""
    view = memoryview(content)
    (count,) = _COUNT.unpack_from(view)
    lengths = struct.unpack_from(f"!{count}Q", view, _COUNT.size)
    offset = _COUNT.size + 8 * count
    contents = []
    for length in lengths:
        contents.append(view[offset : offset + length])
        offset += length
    return contents


def _printable(text: str) -> str:
    """As UTF-8 can carry it; the end of a long text says more than its beginning."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _MAX_TEXT_CHARS else "…" + text[-_MAX_TEXT_CHARS:]
