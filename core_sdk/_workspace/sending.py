"""Files on their way to a workspace: how much of each has arrived there, and its next piece."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from core_sdk._ground.files import fingerprint, read_regular, reading
from core_sdk._workspace.files import CHANGES, COMMAND, kind_of
from core_sdk._workspace.wire import PIECE_BYTES, Extent, PieceHead, piece_of

Edit = Callable[[bytes], bytes]
"""Returns the content of a file as others may read it."""

_State = tuple[int, int, int]
"""The inode, the size and the time of a file, which tell whether it was replaced."""

_LINE_BYTES = 64 << 10


class SentFiles:
    """Knows how much of some files has arrived, and what comes next. Only one thread may use it."""

    def __init__(self, edits: Mapping[str, Edit]) -> None:
        """`edits` has the names of small files of which others may not read all."""
        self.arrived: dict[str, Extent] = {}
        self.left_out: set[str] = set()
        """The files that the workspace does not take."""
        self._edits = edits
        self._looked: dict[str, _State] = {}
        """The state in which a file that is replaced as a whole has arrived."""
        self._large: dict[str, tuple[_State, Extent]] = {}

    def take(self, arrived: Mapping[str, Extent]) -> None:
        """Takes what the workspace has said of these files."""
        self.arrived = dict(arrived)
        self._looked.clear()

    def taken(self, head: PieceHead, size_bytes: int) -> None:
        """Notes how much of a file is there. For one that is replaced, the offset of its next piece."""
        if head.whole is None:
            self.arrived[head.name] = Extent(size_bytes, 0)
        elif size_bytes >= head.whole.size_bytes:
            self.arrived[head.name] = head.whole
            self.arrived.pop(f"{head.name} ", None)
        else:
            self.arrived[f"{head.name} "] = Extent(size_bytes, head.whole.checksum)

    def piece(self, number: int, name: str, path: Path) -> Iterator[tuple[PieceHead, bytes]]:
        """Yields the next piece of a file, unless all of it has arrived or it is left out.

        `number` is that of its trial in the workspace. Raises `OSError`.
        """
        kind, arrived = kind_of(name), self.arrived.get(name)
        if name in self.left_out:
            return
        if kind == "growing":
            offset = 0 if arrived is None else arrived.size_bytes
            if path.stat().st_size <= offset:
                return
            content = _whole_lines(name, read_part(path, offset, PIECE_BYTES))
            if content:
                yield piece_of(number, name, offset, content)
            return
        if kind in ("media", "code") and arrived is not None:
            return
        if name not in (CHANGES, COMMAND) and self._looked.get(name) == _state(path):
            return
        state, whole, read = self._whole(name, path)
        if whole == arrived or (name == CHANGES and not whole.size_bytes):
            self._looked[name] = state
            return
        begun = self.arrived.get(f"{name} ")
        offset = begun.size_bytes if begun is not None and begun.checksum == whole.checksum else 0
        yield piece_of(number, name, offset, read(offset), whole)

    def is_other(self, name: str, path: Path) -> bool:
        """Returns whether what has arrived of a file that grows is not the beginning of the one here.

        If there is less of it here, the workspace compares. Raises `OSError`.
        """
        arrived = self.arrived.get(name)
        if arrived is None or kind_of(name) != "growing" or path.stat().st_size < arrived.size_bytes:
            return False
        return fingerprint(path, arrived.size_bytes) != arrived.checksum

    def _whole(self, name: str, path: Path) -> tuple[_State, Extent, Callable[[int], bytes]]:
        """Returns the state of a file, what is sent of it, and a function that returns a piece of that."""
        state = _state(path)
        if state[1] <= PIECE_BYTES or name == CHANGES or name in self._edits:
            content = read_regular(path)
            if name == CHANGES:
                content = content[: content.rfind(b"\n") + 1]
            if edit := self._edits.get(name):
                content = edit(content)
            extent = Extent(len(content), zlib.crc32(content))
            return state, extent, lambda offset: content[offset : offset + PIECE_BYTES]
        if name not in self._large or self._large[name][0] != state:
            self._large[name] = state, _extent(path)
        return state, self._large[name][1], lambda offset: read_part(path, offset, PIECE_BYTES)


def sent_size(name: str, path: Path) -> int:
    """Returns the size of a file without an incomplete last line of a journal. Raises `OSError`."""
    size_bytes = path.stat().st_size
    if not name.endswith(".journal"):
        return size_bytes
    end = size_bytes
    while end > 0:
        begin = max(0, end - _LINE_BYTES)
        content = read_part(path, begin, end - begin)
        if (found := content.rfind(b"\n")) >= 0:
            return begin + found + 1
        end = begin
    return 0


def read_part(path: Path, offset: int, size_bytes: int) -> bytes:
    with reading(path) as file:
        file.seek(offset)
        return file.read(size_bytes)


def _whole_lines(name: str, content: bytes) -> bytes:
    """Returns the content without an incomplete line of a journal, which may be cut off again if the disk is full."""
    if not name.endswith(".journal"):
        return content
    return content[: content.rfind(b"\n") + 1] or (content if len(content) == PIECE_BYTES else b"")


def _extent(path: Path) -> Extent:
    size_bytes = checksum = 0
    with reading(path) as file:
        while content := file.read(PIECE_BYTES):
            size_bytes += len(content)
            checksum = zlib.crc32(content, checksum)
    return Extent(size_bytes, checksum)


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
