"""Finds a few records in long journals, without decoding the lines that hold others."""

from __future__ import annotations

import contextlib
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

from core_sdk._ground.files import NotRegularError, reading
from core_sdk._ground.records import Record, Report
from core_sdk._home.journal._line import decode_bad_line, decode_line, is_intact, size_of_damaged

_BLOCK_BYTES = 8 << 20

_KINDS = "|".join(kind.__struct_config__.tag for kind in typing.get_args(Record) if kind is not Report)
# A line of another form may be damaged, so that it no longer contains the text. Most lines are reports of training.
_STRANGE = re.compile(
    rb'\n(?=.)(?![0-9a-f]{8} \{"type":"(?:report","time":[^,]+,"group":"training|%b)",)' % _KINDS.encode()
)


def find_records(path: Path, texts: Sequence[str]) -> Iterator[Record | ValueError]:
    """Yields the records, in order, whose lines contain any of `texts`.

    A bad line that may have been one of them gives a `ValueError` with the reason.

    A missing journal is an empty one; one that this user may not read, and a link or a pipe in its place, count as one
    bad line. A last line without its newline is left out.
    """
    wanted = [text.encode() for text in texts]
    try:
        for line in _lines(path, wanted):
            if not is_intact(line) or any(text in line for text in wanted):
                yield from _decoded(line)
    except (NotRegularError, PermissionError) as error:
        yield ValueError(f"cannot be read: {error.strerror}")


def _decoded(line: bytes) -> Iterator[Record | ValueError]:
    try:
        yield decode_line(line)
    except ValueError as error:
        for _, found in decode_bad_line(line, error):
            yield found


def _lines(path: Path, texts: Sequence[bytes]) -> Iterator[bytes]:
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(reading(path))
        except FileNotFoundError:
            return
        rest = b"\n"
        # Not mapped into memory: a writer on a full disk truncates the file while it is being read.
        while block := file.read(_BLOCK_BYTES):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            yield from _lines_of_block(whole + newline, texts)
            rest = newline + rest
    while size_bytes := size_of_damaged(rest[1:]):
        yield rest[1 : 1 + size_bytes]
        rest = rest[size_bytes:]


def _lines_of_block(block: bytes, texts: Sequence[bytes]) -> Iterator[bytes]:
    """Yields the lines of `block` that contain a text or may be damaged. A newline precedes the first line."""
    next_at = {text: block.find(text) for text in texts}
    strange = _STRANGE.finditer(block)
    strange_at = _next_strange(strange)
    while found := [at for at in (*next_at.values(), strange_at) if at >= 0]:
        begin = block.rfind(b"\n", 0, min(found)) + 1
        end = block.find(b"\n", begin)
        yield block[begin:end]
        for text, at in next_at.items():
            if 0 <= at < end:
                next_at[text] = block.find(text, end)
        if 0 <= strange_at < end:
            strange_at = _next_strange(strange)


def _next_strange(strange: Iterator[re.Match[bytes]]) -> int:
    found = next(strange, None)
    return -1 if found is None else found.start() + 1
