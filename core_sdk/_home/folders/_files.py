"""The small files of a home. Each holds one record, and is read and written as a whole."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from core_sdk._ground.files import NotRegularError, read_regular, write_atomically
from core_sdk._ground.records import decode_file, encode_file
from core_sdk.errors import RecordDamagedError

_T = TypeVar("_T")

ID = re.compile(r"[1-9][0-9]{0,17}")


def read_file(path: Path, kind: type[_T]) -> _T | None:
    """Reads a record, which is None if there is no such file. Raises `RecordDamagedError`."""
    content = read_content(path)
    try:
        return None if content is None else decode_file(content, kind)
    except ValueError as error:
        raise RecordDamagedError(path, str(error)) from error


def read_content(path: Path) -> bytes | None:
    """Reads a file, whose content is None if there is no such file. Raises `RecordDamagedError`."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise RecordDamagedError.forbidden(path, error) from error
    except (NotRegularError, IsADirectoryError) as error:
        raise RecordDamagedError(path, "it is not a regular file") from error


def exists(path: Path) -> bool:
    """Returns whether a file is there. One that this user may not look for counts as there: reading it says why."""
    try:
        return path.exists()
    except PermissionError:
        return True


def write_file(path: Path, record: msgspec.Struct, *, overwrite: bool = True, is_durable: bool = True) -> None:
    write_atomically(path, encode_file(record), overwrite=overwrite, is_durable=is_durable)


def numbered_entries(directory: Path) -> list[int]:
    """Returns the names of the directory's entries that are ids, in ascending order."""
    try:
        return sorted(int(entry.name) for entry in os.scandir(directory) if ID.fullmatch(entry.name))
    except FileNotFoundError:
        return []
