"""Objects and failures as bytes. Objects are pickled, and unpickled only if the sender has proved the key."""

from __future__ import annotations

import itertools
import pickle
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from core_sdk._distributed.transport._failure import RankFailure
from core_sdk._ground.decoding import msgpack_decoder
from core_sdk._ground.pickling import dumps_by_value

Buffer = bytes | bytearray | memoryview

_SMALL = frozenset((type(None), bool, int, float))
_TEXTS = frozenset((bytes, str))
_SMALL_LENGTH = 1 << 14
_COUNT = struct.Struct("!I")


class Decoded(NamedTuple):
    """A content that has been unpickled already."""

    value: Any


class Contribution(msgspec.Struct, frozen=True):
    """The contribution of one rank to a collective: a value, or a failure."""

    is_failure: bool
    content: Buffer
    rest: Sequence[Buffer] = ()
    """What follows `content`, in pieces, some of which may be the memory of the value itself."""

    @classmethod
    def of_value(cls, value: object) -> Contribution:
        """Encodes a value. Raises whatever pickling the value raises."""
        pieces = encode(value)
        return cls(False, pieces[0], pieces[1:])

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> Contribution:
        return cls(True, msgspec.msgpack.encode(RankFailure.of(rank, error)))

    @property
    def pieces(self) -> Sequence[Buffer]:
        return (self.content, *self.rest)

    @property
    def num_bytes(self) -> int:
        return len(self.content) + (sum(map(len, self.rest)) if self.rest else 0)

    def failure(self) -> RankFailure:
        return msgpack_decoder(RankFailure)(self.content)


class _Pieces(list[Buffer]):
    """A file for pickle. It gets large `bytes` as they are, where `pickle.dumps()` would copy them several times."""

    write = list.append


def encode(value: object) -> Sequence[Buffer]:
    """Pickles a value. Returns the content in pieces, at least one, which are sent one after the other."""
    try:
        kind = type(value)
        # What is small for certain is pickled in half of the time without a file.
        if kind in _SMALL or (kind in _TEXTS and len(value) < _SMALL_LENGTH):  # type: ignore[arg-type]
            return (pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL),)
        pieces = _Pieces()
        pickle.Pickler(pieces, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        return pieces
    except (pickle.PicklingError, AttributeError, TypeError):
        return (dumps_by_value(value),)


def decode(content: Buffer) -> Any:
    return pickle.loads(content)  # noqa: S301 - the sender has proved the key


def join(contents: Sequence[Sequence[Buffer]]) -> list[Buffer]:
    """Joins several contents, each in pieces, into one. Returns it in pieces, which are sent one after the other."""
    lengths = struct.pack(f"!{len(contents)}Q", *(sum(map(len, pieces)) for pieces in contents))
    return [_COUNT.pack(len(contents)) + lengths, *itertools.chain.from_iterable(contents)]


def split(content: Buffer) -> list[memoryview]:
    """Splits a content that `join` has made, without copying it."""
    view = memoryview(content)
    (count,) = _COUNT.unpack_from(view)
    lengths = struct.unpack_from(f"!{count}Q", view, _COUNT.size)
    ends = itertools.accumulate(lengths, initial=_COUNT.size + 8 * count)
    return [view[begin:end] for begin, end in itertools.pairwise(ends)]
