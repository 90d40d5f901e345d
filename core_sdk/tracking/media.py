"""The files of media of a trial: named by the SHA-256 of their content, and verified whenever they are read."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from core_sdk.errors import RecordDamagedError, UnsafePathError
from core_sdk.files import read_regular
from core_sdk.records import EXTENSIONS

_NAME = re.compile(rf"([0-9a-f]{{64}})\.({'|'.join(EXTENSIONS.values())}|bin)")


def read_media(directory: Path, name: str) -> bytes:
    """Returns the content of a file. Raises `RecordDamagedError` or `UnsafePathError`."""
    path = directory / check_media_name(name)
    try:
        content = read_regular(path)
    except OSError as error:
        raise RecordDamagedError(path, error.strerror or str(error)) from error
    if not is_content_of(name, content):
        raise RecordDamagedError(path, "its content has another SHA-256 than its name says")
    return content


def check_media_name(name: str) -> str:
    """Returns the name of a file of media. Raises `UnsafePathError` for any other name."""
    if _NAME.fullmatch(name) is None:
        raise UnsafePathError("the name", name, "is none of a file of media")
    return name


def is_content_of(name: str, content: bytes | bytearray) -> bool:
    """Returns whether this is the content of the file of this name."""
    return hashlib.sha256(content).hexdigest() == name.partition(".")[0]
