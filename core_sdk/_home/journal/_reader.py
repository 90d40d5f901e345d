"""Reads journals. It tolerates torn tails and bad lines, and can go on where it stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import msgspec

from core_sdk._ground.files import reading
from core_sdk._ground.records import Record
from core_sdk._home.journal._line import decode_bad_line, decode_line, decode_lines, is_beginning, size_of_damaged

logger = logging.getLogger("core_sdk.journal")


class BadLine(msgspec.Struct, frozen=True):
    """A line that was skipped: it is damaged, or of a kind that this version does not know."""

    offset: int
    problem: str


class Chunk(msgspec.Struct, frozen=True):
    """Some consecutive records of a journal."""

    records: list[Record]
    end_offset: int
    """The offset behind this chunk, from which to read on."""
    bad_lines: list[BadLine]
    ends: list[int]
    """The offset behind each record, from which to read on after it."""


def read_journal(path: Path, offset: int = 0, *, chunk_bytes: int = 1 << 20) -> Iterator[Chunk]:
    """Yields the records of whole lines from byte `offset` on, in chunks of about `chunk_bytes`.

    A last line without its newline is being written, or was torn by a crash: it is left for a later read. Bad lines are
    skipped, and returned for the caller to report: one for each record that is damaged, even if only its newline is.

    Raises `OSError`, which is a `NotRegularError` for a link or a pipe in the place of the journal.
    """
    with reading(path) as file:
        file.seek(offset)
        while block := _whole_lines(file, chunk_bytes):
            yield _decode_block(block, offset)
            offset += len(block)
            file.seek(offset)
        file.seek(offset)
        tail = file.read()
    while size_bytes := size_of_damaged(tail):
        yield Chunk([], offset + size_bytes, [BadLine(offset, "has lost its newline")], [])
        offset, tail = offset + size_bytes, tail[size_bytes:]


def read_records(path: Path) -> Iterator[Record]:
    """Yields all records of a journal, in order; bad lines are logged and skipped."""
    for chunk in read_journal(path):
        for bad_line in chunk.bad_lines:
            logger.warning("%s: the line at byte %d %s; skipped", path, bad_line.offset, bad_line.problem)
        yield from chunk.records


def _whole_lines(file: BinaryIO, num_bytes: int) -> bytes:
    block = file.read(num_bytes)
    end = block.rfind(b"\n")
    while end < 0 and (more := file.read(num_bytes)):
        block += more
        end = block.rfind(b"\n")
    return block[: end + 1]


def _decode_block(block: bytes, offset: int) -> Chunk:
    lines = block.split(b"\n")
    lines.pop()  # nothing follows the last newline
    records = decode_lines(lines)
    if records is None:
        return _decode_one_by_one(lines, offset)
    ends = list(accumulate((len(line) + 1 for line in lines), initial=offset))
    return Chunk(records, ends[-1], [], ends[1:])


def _decode_one_by_one(lines: list[bytes], offset: int) -> Chunk:
    """Decodes lines of which some are bad."""
    records: list[Record] = []
    bad_lines: list[BadLine] = []
    ends: list[int] = []
    is_torn = False
    for line in lines:
        try:
            records.append(decode_line(line))
            is_torn = False
        except ValueError as error:
            # A byte that became a newline tears one record into two lines.
            if not is_torn or is_beginning(line):
                _take_apart(line, error, offset, records, bad_lines)
            is_torn = not line.endswith(b"}")
        offset += len(line) + 1
        if len(records) > len(ends):
            ends.append(offset)
    return Chunk(records, offset, bad_lines, ends)


def _take_apart(line: bytes, error: ValueError, offset: int, records: list[Record], bad_lines: list[BadLine]) -> None:
    for begin, found in decode_bad_line(line, error):
        if isinstance(found, ValueError):
            bad_lines.append(BadLine(offset + begin, str(found)))
        else:
            records.append(found)
