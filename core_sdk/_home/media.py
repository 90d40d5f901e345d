"""The media of trials: files that are named by the SHA-256 of their content and verified whenever they are read.

What scripts have written into files of their own is found there by the same names. An annex reads such files.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from core_sdk._ground.files import read_regular
from core_sdk._ground.lru_cache import LRUCache
from core_sdk._ground.records import EXTENSIONS
from core_sdk._home.folders import Home
from core_sdk._home.rows import MediaRow
from core_sdk.errors import MissingDependencyError, RecordDamagedError, UnsafePathError

logger = logging.getLogger("core_sdk.tracking")

_EVENT_FILES = "core_sdk._analysis.tensorboard.script_files"
"""The module that reads event files, imported for a trial that has some."""
_NUM_REMEMBERED = 16
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
    if not is_media_name(name):
        raise UnsafePathError("the name", name, "is none of a file of media")
    return name


def is_media_name(name: str) -> bool:
    """Returns whether a file of media can have this name."""
    return _NAME.fullmatch(name) is not None


def is_content_of(name: str, content: bytes | bytearray) -> bool:
    """Returns whether this is the content of the file of this name."""
    return hashlib.sha256(content).hexdigest() == name.partition(".")[0]


class ScriptMediaFiles(Protocol):
    """The files of a trial into which its script has written media. Any thread may ask."""

    def look(self) -> int:
        """Reads what is new, and returns a number that grows whenever there was anything."""

    def rows(self, trial_id: int, attempts: Sequence[tuple[int, float]]) -> list[MediaRow]:
        """Returns the media. `attempts` are the trial's numbers, with the times at which they began, in order."""

    def content(self, file_name: str) -> bytes | None:
        """Returns the content of a medium by its `MediaFile.name`, or None if no file has it."""


class HomeMedia:
    """The media of a home's trials. It remembers what it has read of files that scripts write. Any thread may ask."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._files = LRUCache[int, ScriptMediaFiles](_NUM_REMEMBERED)
        self._lock = threading.Lock()

    def read(self, trial_id: int, name: str) -> bytes:
        """Returns the content of a file of media, by its `MediaFile.name`, and verifies it.

        Raises `RecordDamagedError` if it is missing or damaged, and `UnsafePathError` for a name that no file has.
        """
        directory = self._home.trial(trial_id).media_path
        is_file = (directory / check_media_name(name)).exists()
        files = None if is_file else self.of(trial_id)
        content = None if files is None else files.content(name)
        return read_media(directory, name) if content is None else content

    def look(self, trial_id: int) -> int:
        """Reads what a script has written into files since, and returns a number that changes if it has."""
        files = self.of(trial_id)
        return 0 if files is None else files.look()

    def of(self, trial_id: int) -> ScriptMediaFiles | None:
        """Returns the files of a trial; None if its script has written none, or nothing can read them."""
        directory = self._home.folder(trial_id).tensorboard_path
        if not directory.is_dir():
            return None
        with self._lock:
            files = self._files.get(trial_id) or _opened(directory)
            return None if files is None else self._files.put(trial_id, files)


def _opened(directory: Path) -> ScriptMediaFiles | None:
    try:
        files: ScriptMediaFiles = importlib.import_module(_EVENT_FILES).ScriptFiles(directory)
    except MissingDependencyError as error:
        logger.warning("the media in %s are left out: %s", directory, error)
        return None
    return files
