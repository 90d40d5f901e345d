"""Objects and failures as bytes. Objects are pickled: only for peers that have proved the key."""

from __future__ import annotations

import itertools
import pickle
import struct
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from core_sdk.distributed._memory_file import Buffer, MemoryFile, MemoryFiles

Content = Buffer | MemoryFile
T = TypeVar("T", bound=Content)

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
    content: Content

    @classmethod
    def of_value(cls, value: object, files: MemoryFiles | None = None) -> Part:
        """A large one is written into one of `files`. Raises whatever the value's own pickling raises."""
        return cls(False, encode(value) if files is None else encode_into(files, value))

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> Part:
        return cls(True, msgspec.msgpack.encode(Failure.of(rank, error)))

    def failure(self) -> Failure:
        return msgspec.msgpack.decode(_in_memory(self.content), type=Failure)

    def release(self) -> None:
        """Once it was sent."""
        if isinstance(self.content, MemoryFile):
            self.content.close()


def encode(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle  # for functions and classes of the script, seldom sent; slow to import

        return bytes(cloudpickle.dumps(value))


def encode_into(files: MemoryFiles, value: object) -> Content:
    try:
        return files.write(lambda target: pickle.dump(value, target, protocol=pickle.HIGHEST_PROTOCOL))
    except (pickle.PicklingError, AttributeError, TypeError, OSError):
        # Not for every pickler; or there is no memory for files, and perhaps there is for bytes.
        return encode(value)


def decode(content: Content) -> Any:
    """A file is closed."""
    if not isinstance(content, MemoryFile):
        return pickle.loads(content)  # noqa: S301 - the sender has proved the key
    try:
        return pickle.load(content.reader())  # noqa: S301 - likewise
    finally:
        content.close()


def join(contents: Sequence[T]) -> list[bytes | T]:
    """Several contents as one, in pieces that need not be copied together."""
    lengths = struct.pack(f"!{len(contents)}Q", *map(len, contents))
    return [_COUNT.pack(len(contents)) + lengths, *contents]


def split(content: Buffer, files: Mapping[int, MemoryFile]) -> list[Content]:
    """The inverse of `join`; `files` are the contents that came instead of bytes, by their position."""
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
    """As UTF-8 can carry it; the end of a long text says more than its beginning."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _MAX_TEXT_CHARS else "…" + text[-_MAX_TEXT_CHARS:]
