"""The seal of a database file: the checksum of all its bytes, in a file beside it."""

from __future__ import annotations

import math
import os
import threading
import time
from pathlib import Path

import msgspec
import xxhash

from core_sdk.files import NotRegularError, read_regular, write_atomically
from core_sdk.records import decode_file, encode_file

_Identity = tuple[int, int]

_BLOCK_BYTES = 1 << 20
_TRUSTED_S = 10.0
"""The seconds for which a file that looks unchanged is trusted after all of it was read."""
_HEADER_BYTES = 100  # this part holds a counter of the transactions that have written to the file

_guard = threading.Lock()
_descriptors: dict[_Identity, tuple[int, int]] = {}
"""For each database file that this process reads: a descriptor, and how many readers share it.

When a process closes any descriptor of a file, it loses all its POSIX locks on the file, and SQLite's are of this kind.
So readers share one descriptor, and the last one closes it after its SQLite has closed the file.
"""


class _Seal(msgspec.Struct, frozen=True):
    size_bytes: int
    xxh128: str


class SealedFile:
    """A database file that is read beside SQLite. Open it before SQLite opens the file, and close it after SQLite."""

    def __init__(self, path: Path) -> None:
        """Opens the file. Raises `FileNotFoundError`."""
        self._path = path
        self._seal_path = seal_path(path)
        self._identity, self._descriptor = _share(path)
        self._verified: bytes | None = None
        self._read_at = -math.inf

    def close(self) -> None:
        _give_back(self._identity)

    def is_at_its_place(self) -> bool:
        """Whether the path still leads to this file; False if another process has deleted or rebuilt it."""
        try:
            return _identity(self._path.stat()) == self._identity
        except FileNotFoundError:
            return False

    def is_whole(self, *, read_anew: bool) -> bool:
        """Whether the file's bytes are those that were sealed.

        A file that looks unchanged is read only with `read_anew`, and only if it was not read a few seconds ago.
        """
        look = self._look()
        is_trusted = time.monotonic() - self._read_at < _TRUSTED_S
        if look != self._verified or (read_anew and not is_trusted):
            self._verified = look if self._checksum() == self._read_seal() else None
        return self._verified is not None

    def seal(self) -> None:
        """Writes the seal, after SQLite has written to the file. No other process may be writing."""
        look = self._look()
        if look != self._verified:
            write_atomically(self._seal_path, encode_file(self._checksum()))
            self._verified = look

    def _look(self) -> bytes:
        status = os.fstat(self._descriptor)
        return b"%d %d %b" % (status.st_size, status.st_mtime_ns, os.pread(self._descriptor, _HEADER_BYTES, 0))

    def _checksum(self) -> _Seal:
        self._read_at = time.monotonic()
        hasher = xxhash.xxh3_128()
        block = bytearray(_BLOCK_BYTES)
        size_bytes = 0
        while count := os.preadv(self._descriptor, [block], size_bytes):
            hasher.update(memoryview(block)[:count])
            size_bytes += count
        return _Seal(size_bytes, hasher.hexdigest())

    def _read_seal(self) -> _Seal | None:
        try:
            return decode_file(read_regular(self._seal_path), _Seal)
        except (FileNotFoundError, NotRegularError, ValueError):
            return None


def seal_path(database: Path) -> Path:
    return database.with_name(database.name + ".seal")


def _share(path: Path) -> tuple[_Identity, int]:
    with _guard:
        identity = _identity(path.stat())
        if identity not in _descriptors:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            identity = _identity(os.fstat(descriptor))
            _descriptors[identity] = descriptor, 0
        descriptor, num_readers = _descriptors[identity]
        _descriptors[identity] = descriptor, num_readers + 1
        return identity, descriptor


def _give_back(identity: _Identity) -> None:
    with _guard:
        descriptor, num_readers = _descriptors.pop(identity)
        if num_readers > 1:
            _descriptors[identity] = descriptor, num_readers - 1
        else:
            os.close(descriptor)


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
