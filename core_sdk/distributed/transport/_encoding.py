"""Objects and failures as bytes. Objects are pickled, and unpickled only if the sender has proved the key."""

from __future__ import annotations

import itertools
import pickle
import struct
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from core_sdk.distributed.transport._memory_file import MIN_BYTES, Buffer, MemoryFile, MemoryFiles
from core_sdk.pickling import dumps_by_value

Content = Buffer | MemoryFile
T = TypeVar("T", bound=Content)

_MAX_TEXT_CHARS = 16_384
_SMALL_TYPES = (type(None), bool, int, float)
_TEXT_TYPES = (bytes, str)
_FEW = MIN_BYTES // 8
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
    content: Content

    @classmethod
    def of_value(cls, value: object, files: MemoryFiles | None = None) -> Contribution:
        """Encodes a value; a large one is written into a memory file. Raises whatever pickling the value raises."""
        return cls(False, encode(value) if files is None else encode_into(files, value))

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> Contribution:
        return cls(True, msgspec.msgpack.encode(RankFailure.of(rank, error)))

    def failure(self) -> RankFailure:
        return msgspec.msgpack.decode(_in_memory(self.content), type=RankFailure)


def encode(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return dumps_by_value(value)


def encode_into(files: MemoryFiles, value: object) -> Content:
    if isinstance(value, _SMALL_TYPES) or (isinstance(value, _TEXT_TYPES) and len(value) < _FEW):
        return encode(value)
    try:
        return files.write(lambda target: pickle.dump(value, target, protocol=pickle.HIGHEST_PROTOCOL))
    except (pickle.PicklingError, AttributeError, TypeError, OSError):
        # Perhaps only cloudpickle can pickle the value, or memory is left for bytes but not for files.
        return encode(value)


def decode(content: Content) -> Any:
    if isinstance(content, MemoryFile):
        return pickle.load(content.reader())  # noqa: S301 - the sender has proved the key
    return pickle.loads(content)  # noqa: S301 - likewise


def release(content: Content) -> None:
    """Frees the memory of a content that is no longer needed."""
    if isinstance(content, MemoryFile):
        content.close()


def join(contents: Sequence[T]) -> list[bytes | T]:
    """Joins several contents into one. Returns it in pieces, which are sent one after the other."""
    lengths = struct.pack(f"!{len(contents)}Q", *map(len, contents))
    return [_COUNT.pack(len(contents)) + lengths, *contents]


def split(content: Buffer, files: Mapping[int, MemoryFile]) -> list[Content]:
    """Splits a content that `join` has made. `files` are the contents that came as memory files, by their position."""
    view = memoryview(content)
    (count,) = _COUNT.unpack_from(view)
    lengths = struct.unpack_from(f"!{count}Q", view, _COUNT.size)
    offset = position = _COUNT.size + 8 * count
    if not files:
        return [view[begin:end] for begin, end in itertools.pairwise(itertools.accumulate(lengths, initial=offset))]
    contents: list[Content] = []
    for length in lengths:
        if length and (file := files.get(position)) is not None:
            contents.append(file)
        else:
            contents.append(view[offset : offset + length])
            offset += length
        position += length
    return contents


def _in_memory(content: Content) -> Buffer:
    return content.view() if isinstance(content, MemoryFile) else content


def _printable(text: str) -> str:
    """Returns the text as valid UTF-8. A long text loses its beginning, which says less than its end."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _MAX_TEXT_CHARS else "…" + text[-_MAX_TEXT_CHARS:]
