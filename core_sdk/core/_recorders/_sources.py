"""Keeps the sources that the process of a variation has imported, so that its evidence shows what has run."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path

from core_sdk._ground.importing import file_of, is_of_library
from core_sdk._home import TrialFolder
from core_sdk._home.sources import SourceArchive, read_sources

logger = logging.getLogger("core_sdk.core")

# How long a script that ends at once waits for the archive.
_CLOSE_TIMEOUT_S = 1.0
_OUR_OWN = f"{Path(__file__).parents[2]}{os.sep}"


class SourceRecorder:
    """Keeps what the script has imported from outside its environment: when it begins, and what is new at its end."""

    def __init__(self, folder: TrialFolder, attempt: int) -> None:
        command = folder.read_command()
        self._directory = Path(command.cwd) if command else Path.cwd()
        self._copied_path = folder.sources_path
        self._path = folder.imported_path(attempt)
        self._archive = SourceArchive(_began())
        self._thread = threading.Thread(target=self._keep_first, name="core-sdk-sources", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Adds what was imported since. Waits for the first files, but at most a second."""
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)
            if not self._thread.is_alive():
                self._keep(self._imported())

    def _keep_first(self) -> None:
        self._keep(self._imported() | self._changed_since_copied())

    def _keep(self, files: dict[str, Path]) -> None:
        try:
            if self._archive.add(files):
                self._archive.write(self._path)
        except OSError as error:
            logger.info("the imported sources were not kept in %s: %s", self._path, error)

    def _imported(self) -> dict[str, Path]:
        found = (file_of(module) for module in list(sys.modules.values()))
        own = (file for file in found if file and not is_of_library(file) and not file.startswith(_OUR_OWN))
        return {self._name(file): Path(file) for file in own}

    def _name(self, file: str) -> str:
        name = os.path.relpath(file, self._directory)
        return name if not name.startswith("..") else os.path.relpath(os.path.realpath(file), self._directory.resolve())

    def _changed_since_copied(self) -> dict[str, Path]:
        """Returns the files that were written since the directory was copied, such as a configuration."""
        copied = read_sources(self._copied_path)
        changed = {}
        for name, source in copied.files.items() if copied else ():
            path = self._directory / name
            if path.exists() and abs(path.stat().st_mtime - source.modified) > 1e-6:
                changed[name] = path
        return changed


def _began() -> float:
    """Returns when this process began, in seconds since 1970; now, where the system does not say."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError):
        return time.time()
