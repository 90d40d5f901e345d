"""Unpacks stored code: into a trial's folder, where its attempts run, or into a new directory for people."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import shutil
import tarfile
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from core_sdk._ground.files import fsync_tree
from core_sdk._ground.ownership import make_directory
from core_sdk._home import Home, TrialFolder
from core_sdk.errors import CodeDamagedError

STARTUP_HOOK = "startup-hook.sh"

_CHUNK_BYTES = 1 << 20
_UNFINISHED = ".code.*.tmp"


def unpack_for_trial(home: Home, sha256: str, folder: TrialFolder) -> Path:
    """Returns the trial's own copy of the code, and unpacks it if it is not there yet.

    After a power cut the copy is complete or absent. Raises `CodeDamagedError`.
    """
    for unfinished in folder.path.glob(_UNFINISHED):
        shutil.rmtree(unfinished)
    if not folder.code_path.exists():
        temporary = folder.path / _UNFINISHED.replace("*", uuid.uuid4().hex)
        unpack(home, sha256, temporary)
        fsync_tree(temporary)
        temporary.rename(folder.code_path)
    return folder.code_path


def remove_code(folder: TrialFolder) -> None:
    """Removes the trial's copy of the code. If this is cut off, `unpack_for_trial` makes another copy."""
    if folder.code_path.exists():
        temporary = folder.path / _UNFINISHED.replace("*", uuid.uuid4().hex)
        folder.code_path.rename(temporary)
        shutil.rmtree(temporary)


def check_archive(home: Home, sha256: str) -> None:
    """Raises `CodeDamagedError` unless the whole archive has the right hash."""
    path = home.code_archive(sha256)
    with _reading(path), path.open("rb") as file:
        _check(file, path, sha256)


def unpack(home: Home, sha256: str, directory: Path) -> None:
    """Unpacks code into a new directory. Nothing is written unless the whole archive has the right hash.

    Raises `CodeDamagedError`, or `FileExistsError` if the directory exists.
    """
    path = home.code_archive(sha256)
    with _reading(path), path.open("rb") as file:
        _check(file, path, sha256)
        file.seek(0)
        make_directory(directory)
        with gzip.open(file) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(directory, filter=_without_time)


def _check(file: BinaryIO, path: Path, sha256: str) -> None:
    if _sha256_of_tar(file) != sha256:
        raise CodeDamagedError(path, "does not have the content that its name says")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise CodeDamagedError(path, "is missing") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise CodeDamagedError(path, f"cannot be unpacked: {error}") from error


def with_startup_hook(argv: Sequence[str]) -> list[str]:
    """Returns a command that sources the hook in the current directory, then executes `argv` unless the hook fails."""
    return ["bash", "-c", f'set -e; . ./{STARTUP_HOOK}; set +e; exec "$@"', STARTUP_HOOK, *argv]


def has_startup_hook(code: Path) -> bool:
    return os.access(code / STARTUP_HOOK, os.X_OK)


def _sha256_of_tar(file: BinaryIO) -> str:
    """Returns the hash of the tar archive inside. It is read as a stream, so that no archive can fill the memory."""
    digest = hashlib.sha256()
    with gzip.open(file) as stream:
        while content := stream.read(_CHUNK_BYTES):
            digest.update(content)
    return digest.hexdigest()


def _without_time(member: tarfile.TarInfo, directory: str) -> tarfile.TarInfo | None:
    """Refuses members that leave the directory, and drops their times, so that files are as new as their unpacking."""
    checked = tarfile.data_filter(member, directory)
    return checked and checked.replace(mtime=None, deep=False)  # type: ignore[arg-type]
