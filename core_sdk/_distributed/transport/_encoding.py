"""Objects and failures as bytes. Objects are pickled, and unpickled only if the sender has proved the key."""

from __future__ import annotations

import itertools
import pickle
import struct
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from core_sdk._ground.decoding import msgpack_decoder
from core_sdk._ground.pickling import dumps_by_value

Buffer = bytes | bytearray | memoryview

_MAX_TEXT_CHARS = 16_384
_COUNT = struct.Struct("!I")


class RankFailure(msgspec.Struct, frozen=True, tag=True):
    """An error of one rank, as text for the other ranks."""

    rank: int
    error_text: str
    traceback_text: str = ""

    @classmethod
    def of(cls, rank: int, error: BaseException) -> RankFailure:
        error_text = "".join(traceback.format_exception_only(error)).strip()
        traceback_text = "".join(traceback.format_exception(error))
        return cls(rank, _printable(error_text), _printable(traceback_text))


class Decoded(NamedTuple):
    """A content that has been unpickled already."""

    value: Any


class Contribution(msgspec.Struct, frozen=True):
    """The contribution of one rank to a collective: a value, or a failure."""

    is_failure: bool
    content: Buffer

    @classmethod
    def of_value(cls, value: object) -> Contribution:
        """Encodes a value. Raises whatever pickling the value raises."""
        return cls(False, encode(value))

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> Contribution:
        return cls(True, msgspec.msgpack.encode(RankFailure.of(rank, error)))

    def failure(self) -> RankFailure:
        return msgpack_decoder(RankFailure)(self.content)


def encode(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return dumps_by_value(value)


def decode(content: Buffer) -> Any:
    return pickle.loads(content)  # noqa: S301 - the sender has proved the key


def join(contents: Sequence[Buffer]) -> list[Buffer]:
    """Joins several contents into one. Returns it in pieces, which are sent one after the other."""
    lengths = struct.pack(f"!{len(contents)}Q", *map(len, contents))
    return [_COUNT.pack(len(contents)) + lengths, *contents]


def split(content: Buffer) -> list[memoryview]:
    """Splits a content that `join` has made, without copying it."""
    view = memoryview(content)
    (count,) = _COUNT.unpack_from(view)
    lengths = struct.unpack_from(f"!{count}Q", view, _COUNT.size)
    ends = itertools.accumulate(lengths, initial=_COUNT.size + 8 * count)
    return [view[begin:end] for begin, end in itertools.pairwise(ends)]


def _printable(text: str) -> str:
    """Returns the text as valid UTF-8. A long text loses its beginning, which says less than its end."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _MAX_TEXT_CHARS else "…" + text[-_MAX_TEXT_CHARS:]
