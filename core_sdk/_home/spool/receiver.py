"""Writes records from a spool into the home."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from core_sdk._ground.files import write_atomically, write_whole
from core_sdk._ground.ownership import give_to_owner_of, make_directory
from core_sdk._home.spool.pieces import Arrived, Piece, files_of, is_growing, is_whole
from core_sdk.errors import UnsafePathError


class Receiver:
    """Receives the files of a trial, or only those from one attempt on.

    Content that has arrived before is ignored, so that a piece may arrive twice. Only one thread of one process may use
    the receiver.
    """

    def __init__(self, root: Path, trial_id: int, attempt: int | None = None) -> None:
        """Accepts only files that grow if no `attempt` is given."""
        self._root = root
        self.trial_id = trial_id
        self.attempt = attempt
        self._replaced: dict[str, Arrived] = {}

    def known(self) -> dict[str, Arrived]:
        """Returns what has arrived of each file."""
        names = files_of(self._root, self.trial_id)
        growing = [name for name in names if is_growing(name, self.trial_id, self.attempt)]
        return {name: Arrived.at(self._root / name) for name in growing} | self._replaced

    def knows(self, name: str, content: bytes) -> None:
        """Records the content that the node has for a file that is replaced as a whole, so that it is not brought."""
        self._replaced[name] = Arrived.whole(content)

    def receive(self, piece: Piece) -> int:
        """Writes the new part of a piece durably, and returns the present size of its file.

        A piece that would leave a gap is not written. After an `OSError`, nothing of the piece is written. Raises
        `UnsafePathError`.
        """
        path = self._root / piece.name
        if piece.is_whole and is_whole(piece.name, self.trial_id, self.attempt):
            write_atomically(path, piece.content)
            self.knows(piece.name, piece.content)
            return len(piece.content)
        if piece.is_whole or not is_growing(piece.name, self.trial_id, self.attempt):
            raise UnsafePathError("the name", piece.name, "is none of a file that a node brings")
        make_directory(path.parent, parents=True, exist_ok=True)
        return append(path, piece.offset, piece.content)


def append(path: Path, offset: int, content: bytes) -> int:
    """Writes what is new of these bytes of a file durably, and returns the present size of the file.

    What would leave a gap is not written. After an `OSError`, nothing is written. Raises `OtherContentError` if the
    file has other bytes there.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        # Several attempts that begin on a node at once may bring the same leftovers of lost attempts.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        give_to_owner_of(path.parent, path, descriptor)
        size = os.fstat(descriptor).st_size
        known = content[: max(0, size - offset)]
        if known and os.pread(descriptor, len(known), offset) != known:
            raise OtherContentError(errno.ESTALE, "the file has other content", str(path))
        new = content[size - offset :] if offset <= size else b""
        if not new:
            return size
        try:
            write_whole(descriptor, new)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        return size + len(new)
    finally:
        os.close(descriptor)


class OtherContentError(OSError):
    """Bytes that are to be written to a file are other ones than it has."""
