"""Files in shared memory for large contents. One rank writes a file, and others of its host get its descriptor.

A file is sealed before it is sent, so that it neither changes nor shrinks while others read it. It is closed after its
content has been decoded. A file that is dropped before that, because of an error, is closed when no variable holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import mmap
import os
import weakref
from collections.abc import Callable
from typing import BinaryIO, Protocol, cast

Buffer = bytes | bytearray | memoryview

MIN_BYTES = 1 << 18
"""A smaller content costs less if it is copied through the sockets."""


class MemoryFile:
    """A content in shared memory, and this process's descriptor of it."""

    def __init__(self, descriptor: int, num_bytes: int) -> None:
        self._descriptor = descriptor
        self._num_bytes = num_bytes
        self._map: mmap.mmap | None = None

    def __len__(self) -> int:
        return self._num_bytes

    def fileno(self) -> int:
        return self._descriptor

    def finish(self, num_bytes: int) -> None:
        """Records the size of the content, after it has been written."""
        self._num_bytes = num_bytes

    def reader(self) -> BinaryIO:
        """Returns a reader from the beginning. Costs less than `view()` if the content is read once."""
        return cast(BinaryIO, io.BufferedReader(_MemoryReader(self._descriptor)))

    def view(self) -> memoryview:
        """Returns the content without copying it. Valid until the file is closed."""
        if self._map is None:
            # Older kernels refuse a shared mapping of a file whose seals forbid writing.
            self._map = mmap.mmap(self._descriptor, self._num_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        return memoryview(self._map)

    def close(self) -> None:
        """Closes the file. Does nothing the second time."""
        descriptor, self._descriptor = self._descriptor, -1
        if self._map is not None:
            with contextlib.suppress(BufferError):  # the map closes together with its last view
                self._map.close()
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class _MemoryReader(io.RawIOBase):
    """A reader with its own position, since the file's position is shared by all processes that hold it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        num_read = os.preadv(self._descriptor, [buffer], self._position)
        self._position += num_read
        return num_read


class Writable(Protocol):
    def write(self, piece: Buffer, /) -> object: ...


class MemoryFiles:
    """The memory files that a group has open."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[MemoryFile] = weakref.WeakSet()

    def write(self, dump: Callable[[Writable], None]) -> bytes | MemoryFile:
        """Returns the content that `dump` writes: a file if it is large. Raises what `dump` raises, and `OSError`."""
        draft = _Draft(self._open)
        try:
            dump(draft)
            return draft.finished()
        except BaseException:
            draft.drop()
            raise

    def adopt(self, descriptor: int, num_bytes: int) -> MemoryFile:
        """Returns a file that a peer has sent. Raises `ValueError` if it is not sealed, or has another size."""
        file = MemoryFile(descriptor, num_bytes)
        _check(descriptor, num_bytes)
        self._open.add(file)
        return file

    def close_inherited(self) -> None:
        """Closes the files in a forked child, which would otherwise keep memory that its parent frees."""
        for file in list(self._open):
            file.close()


def are_memory_files_available() -> bool:
    return hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


class _Draft:
    """Collects what is written, and moves it into a file as soon as it is large."""

    __slots__ = ("_file", "_num_bytes", "_opened", "_pieces")

    def __init__(self, opened: weakref.WeakSet[MemoryFile]) -> None:
        self._opened = opened
        self._pieces: list[bytes] = []
        self._num_bytes = 0
        self._file: MemoryFile | None = None

    def write(self, piece: Buffer) -> None:
        self._num_bytes += len(piece)
        # The pickler may overwrite the memory of a view.
        self._pieces.append(piece if isinstance(piece, bytes) else bytes(piece))
        if self._num_bytes >= MIN_BYTES:
            self._flush()

    def finished(self) -> bytes | MemoryFile:
        if self._file is None:
            return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, _seals())
        self._file.finish(self._num_bytes)
        return self._file

    def drop(self) -> None:
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if self._file is None:
            self._file = MemoryFile(os.memfd_create("core-sdk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), 0)
            # Added at once, so that a process that is forked during the writing closes it.
            self._opened.add(self._file)
        for piece in self._pieces:
            waiting = memoryview(piece)
            while waiting:
                waiting = waiting[os.write(self._file.fileno(), waiting) :]
        self._pieces.clear()


def _check(descriptor: int, num_bytes: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:  # not a memory file
        seals = 0
    if seals & _seals() != _seals():
        raise ValueError("a file came that its sender can still change")
    if (found_bytes := os.fstat(descriptor).st_size) != num_bytes:
        raise ValueError(f"a file of {num_bytes:,} bytes was announced, and one of {found_bytes:,} came")


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
