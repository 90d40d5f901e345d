"""Packs a code directory, and stores the archive once."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import logging
import os
import stat
import tarfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from core_sdk._execution.experiments.code._selection import MAX_SIZE_BYTES, Entry, largest, select
from core_sdk._execution.experiments.code._unpacking import check_archive
from core_sdk._ground.files import fsync_directory
from core_sdk._ground.ownership import give_to_owner_of, make_directory
from core_sdk._home import Home
from core_sdk.errors import CodeDamagedError, CodeDirectoryError, ExperimentError

logger = logging.getLogger("core_sdk.experiments")

_WARNING_SIZE_BYTES = 50 << 20
# Level 6 takes three times as long, and makes the archive of scripts only a few per cent smaller.
_COMPRESSION_LEVEL = 1
_ABANDONED_S = 24 * 3600


@dataclass(frozen=True)
class PackedCode:
    sha256: str
    size_bytes: int
    num_files: int
    programs: frozenset[str]
    """The names of the executable files."""
    scripts: frozenset[str]
    """The names of the Python files."""


def pack(
    home: Home, directory: Path | None, includes: Sequence[Path] = (), *, max_size_bytes: int = MAX_SIZE_BYTES
) -> PackedCode:
    """Stores the code in the home, unless equal code is stored there.

    A stored archive that is damaged is replaced. Raises `CodeDirectoryError` or `ExperimentError`.
    """
    return pack_entries(home, select(directory, includes, left_out=home.root, max_size_bytes=max_size_bytes))


def pack_entries(home: Home, entries: Sequence[Entry]) -> PackedCode:
    """Stores these files like `pack`."""
    code = PackedCode(
        sha256=_write_archive(entries),
        size_bytes=sum(entry.size_bytes for entry in entries),
        num_files=len(entries),
        programs=frozenset(entry.name for entry in entries if entry.is_program),
        scripts=frozenset(entry.name for entry in entries if entry.name.endswith(".py")),
    )
    if code.size_bytes > _WARNING_SIZE_BYTES:
        files = ", ".join(f"{name!r} ({size_bytes >> 20:,} MiB)" for name, size_bytes in largest(entries))
        logger.warning("the code directory holds %d MiB. Its largest files: %s", code.size_bytes >> 20, files)
    try:
        check_archive(home, code.sha256)
    except CodeDamagedError:  # or it is missing
        _store(home.code_archive(code.sha256), entries, code.sha256)
    return code


def _store(path: Path, entries: Sequence[Entry], sha256: str) -> None:
    make_directory(path.parent, exist_ok=True)
    _remove_abandoned(path.parent)
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            give_to_owner_of(path.parent, temporary, descriptor)
            with gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, file, mtime=0) as compressed:
                if _write_archive(entries, compressed) != sha256:
                    raise _changed(None)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)


def _remove_abandoned(directory: Path) -> None:
    """Removes unfinished files of processes that were killed long ago."""
    for path in directory.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()


def _write_archive(entries: Sequence[Entry], file: IO[bytes] | gzip.GzipFile | None = None) -> str:
    """Writes the tar archive, if there is a file for it. Returns its SHA-256."""
    output = _HashedOutput(file)
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for entry in entries:
            _add(archive, entry)
    return output.sha256.hexdigest()


class _HashedOutput:
    def __init__(self, file: IO[bytes] | gzip.GzipFile | None) -> None:
        self.sha256 = hashlib.sha256()
        self._file = file

    def write(self, content: bytes) -> int:
        self.sha256.update(content)
        if self._file is not None:
            self._file.write(content)
        return len(content)


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    """Adds an entry with fixed times, owners and permissions, except for the owner's right to execute the file."""
    member = tarfile.TarInfo(entry.name)
    member.mode = 0o755 if entry.status.st_mode & stat.S_IXUSR else 0o644
    if entry.target:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.target, 0o777
        archive.addfile(member)
    elif stat.S_ISDIR(entry.status.st_mode):
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(member)
    else:
        member.size = entry.size_bytes
        _add_file(archive, member, entry)


def _add_file(archive: tarfile.TarFile, member: tarfile.TarInfo, entry: Entry) -> None:
    try:
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CodeDirectoryError(entry.path, f"cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if _version(os.fstat(descriptor)) != _version(entry.status):
            raise _changed(entry.path)
        try:
            archive.addfile(member, file)
        except OSError as error:
            if error.errno is not None:
                raise
            raise _changed(entry.path) from error  # it has become shorter


def _changed(path: Path | None) -> ExperimentError:
    what = "the code directory" if path is None else f"{path}, a file of the code directory,"
    return ExperimentError(
        f"{what} changed while it was being packed. Submit again when nothing writes to it, or name in .coreignore "
        "what is being written."
    )


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
