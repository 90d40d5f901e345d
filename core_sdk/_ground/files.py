"""Names files by URLs, opens them by descriptor, and writes small ones that are whole even after a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
import uuid
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote_from_bytes

from core_sdk._ground.ownership import give_to_owner_of

_FINGERPRINT_BYTES = 1024


def file_url(path: Path) -> str:
    """Returns the `file:` URL of an absolute path. From Python 3.14 on, `as_uri` imports an HTTP client for it."""
    return f"file://{quote_from_bytes(os.fsencode(path))}"


def write_atomically(path: Path, content: bytes, *, overwrite: bool = True, is_durable: bool = True) -> None:
    """Writes, fsyncs and renames a file, so that a reader sees the old content or the new one.

    With `overwrite=False`, raises `FileExistsError` if the file exists, even if two writers race. A file that is not
    durable is not fsynced. It is for running processes, and may be empty after a power cut.
    """
    _write_aside(path, content, overwrite=overwrite, is_durable=is_durable)
    if is_durable:
        fsync_directory(path.parent)


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Writes files of one directory, each atomically and in this order. A reader of the last one sees all of them.

    The directory is fsynced only once, since that costs as much as writing a file.
    """
    for path, content in contents.items():
        _write_aside(path, content, overwrite=True, is_durable=True)
    fsync_directory(path.parent)


def _write_aside(path: Path, content: bytes, *, overwrite: bool, is_durable: bool) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            give_to_owner_of(path.parent, temporary, descriptor)
            write_whole(descriptor, content)
            if is_durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if overwrite:
            temporary.replace(path)
        else:
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(descriptor: int, content: bytes) -> None:
    """Writes all of the content by one write, or raises `OSError`: a part of it may have been written then."""
    try:
        if os.write(descriptor, content) == len(content):
            return
    except OSError as error:
        raise explained(error) from None
    raise cut_short(descriptor)


def cut_short(descriptor: int) -> OSError:
    """Returns the error of a write of which the file system took only a part.

    The kernel says why only when the rest is written, which would be torn from its beginning by a signal handler.
    """
    limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    is_limited = limit_bytes != resource.RLIM_INFINITY and os.fstat(descriptor).st_size >= limit_bytes
    number = errno.EFBIG if is_limited else errno.ENOSPC
    return explained(OSError(number, os.strerror(number)))


def is_full(error: BaseException) -> bool:
    """Returns whether the disk is full, or the user's share of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def explained(error: OSError) -> OSError:
    """Returns the error with better words, if its file may not be so large, or its file system takes no more files."""
    limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if error.errno == errno.EFBIG and limit_bytes != resource.RLIM_INFINITY:
        words = (
            f"this process may not write files above {limit_bytes:,} bytes: raise the limit (RLIMIT_FSIZE, `ulimit -f`)"
        )
    elif error.errno == errno.ENOSPC and error.filename is not None and not has_free_inodes(Path(str(error.filename))):
        words = NO_INODES
    else:
        return error
    return OSError(error.errno, words, error.filename)


NO_INODES = "its file system has no inode free: delete files there, however small they are"


def has_free_inodes(path: Path) -> bool:
    """Returns whether a file can be made where `path` lies, as far as the number of files there is concerned."""
    while not path.exists() and path != path.parent:
        path = path.parent
    system = os.statvfs(path)
    return system.f_favail > 0 or system.f_files == 0  # some file systems do not count


def fsync_directory(directory: Path) -> None:
    """Fsyncs a directory, so that its entries survive a power cut."""
    with opened(directory, os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def fsync_tree(directory: Path) -> None:
    """Fsyncs a directory with all that is in it. The targets of links are not fsynced."""
    for parent, _, names in os.walk(directory):
        for path in (Path(parent, name) for name in names):
            if not path.is_symlink():
                with opened(path, os.O_NOFOLLOW | os.O_NONBLOCK) as descriptor:
                    os.fsync(descriptor)
        fsync_directory(Path(parent))


def read_regular(path: Path | str) -> bytes:
    """Returns the content of a regular file. Raises the errors of `opened_regular`."""
    with reading(path) as file:
        return file.read()


def fingerprint(path: Path, size_bytes: int) -> int:
    """Returns a checksum of the beginning and the end of a file's first `size_bytes`.

    It tells a file that has only grown from another one in its place. Raises `NotRegularError` like `reading`.
    """
    with reading(path) as file:
        checksum = zlib.crc32(file.read(min(size_bytes, _FINGERPRINT_BYTES)))
        file.seek(max(0, size_bytes - _FINGERPRINT_BYTES))
        return zlib.crc32(file.read(min(size_bytes, _FINGERPRINT_BYTES)), checksum)


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[BinaryIO]:
    """Opens a regular file to be read. Raises the errors of `opened_regular`."""
    with opened_regular(path) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
        yield file


@contextlib.contextmanager
def opened_regular(path: Path | str) -> Iterator[int]:
    """Yields a descriptor to read a regular file. Links are not followed, and a pipe does not block.

    Raises `IsADirectoryError` for a directory, and `NotRegularError` for anything else that is not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            raise NotRegularError(errno.EINVAL, "is not a regular file", str(path)) from error
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise NotRegularError(errno.EINVAL, "is not a regular file", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


class NotRegularError(OSError):
    """A file that was to be read is a link, a pipe, a socket or a device."""


@contextlib.contextmanager
def opened(path: Path | str, flags: int, *, under: int | None = None, mode: int = 0o777) -> Iterator[int]:
    """Yields a descriptor of `path`, or of `path` under the directory `under`. Read-only unless `flags` say more."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode, dir_fd=under)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
