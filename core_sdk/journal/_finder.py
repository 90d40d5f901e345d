"""Finding few records in long journals: most lines are reports, and need not be decoded to be passed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from core_sdk.journal._line import decode_line
from core_sdk.records import Record

_BLOCK_BYTES = 8 << 20


def find_records(path: Path, texts: Sequence[str]) -> Iterator[Record | ValueError]:
    """The records, in order, whose lines contain any of `texts`; a bad line gives the `ValueError` that says why.

    A missing journal is an empty one. A last line without its newline is left out.
    """
    for line in _lines(path, [text.encode() for text in texts]):
        try:
            yield decode_line(line)
        except ValueError as error:
            yield error


def _lines(path: Path, texts: Sequence[bytes]) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        rest = b""
        # Not mapped into memory: a writer on a full disk cuts half a line off again, under a reader's feet.
        while block := file.read(_BLOCK_BYTES):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            yield from _lines_of_block(whole + newline, texts)


def _lines_of_block(block: bytes, texts: Sequence[bytes]) -> Iterator[bytes]:
    next_at = {text: block.find(text) for text in texts}
    while found := [at for at in next_at.values() if at >= 0]:
        begin = block.rfind(b"\n", 0, min(found)) + 1
        end = block.find(b"\n", begin)
        yield block[begin:end]
        for text, at in next_at.items():
            if 0 <= at < end:
                next_at[text] = block.find(text, end)
