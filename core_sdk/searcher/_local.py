"""A runner in a process of its own, which keeps its state in a directory."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.files import fsync_directory, fsync_tree, write_atomically
from core_sdk.errors import ExperimentError
from core_sdk.search import SearchMethod
from core_sdk.searcher._runner import Config, SearchRunner, paths


class LocalSearchRunner(SearchRunner):
    """Drives the method in this process. The directory `searcher_dir` belongs to one search."""

    def __init__(self, search_method: SearchMethod, searcher_dir: str | PathLike[str] | None = None) -> None:
        """The default of `searcher_dir` is `searcher_dir` in the current directory."""
        super().__init__(search_method)
        self.searcher_dir = Path(searcher_dir or "searcher_dir")
        self._states = self.searcher_dir / "state"

    def run(
        self,
        exp_config: Config,
        model_dir: str | PathLike[str] | None = None,
        includes: Iterable[str | PathLike[str]] | None = None,
    ) -> int:
        """Submits the experiment and drives it to its end, or goes on with it; returns its id.

        If the search of `searcher_dir` was submitted before, the runner continues it and does not read the arguments.
        After Ctrl-C or an error of the method, the experiment waits for the next runner. Raises `ExperimentError`
        if another runner already drives the search of this directory, and the errors of `client.create_experiment`.
        """
        self._states.mkdir(parents=True, exist_ok=True)
        try:
            lock = AliveLock(self.searcher_dir / "lock")
        except BlockingIOError as error:
            raise ExperimentError(
                f"another runner drives the search of {self.searcher_dir}. Give each search a directory of its own."
            ) from error
        try:
            for number in self._saved():
                self._read_state(self._states / str(number))
                break
            return self._run(exp_config, *paths(model_dir, includes), self._key())
        finally:
            lock.release()

    def _save(self, num_events: int) -> None:
        before = self._saved()
        new, place = self._states / "new", self._states / str(num_events)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        self._write_state(new)
        fsync_tree(new)
        new.rename(place)
        fsync_directory(self._states)
        for number in before:
            shutil.rmtree(self._states / str(number))

    def _saved(self) -> list[int]:
        """Returns the numbers of events of the states that were saved completely, the newest first."""
        return sorted((int(path.name) for path in self._states.iterdir() if path.name.isdecimal()), reverse=True)

    def _key(self) -> str:
        """Returns the key of the submission, which is stored first, so that the experiment is submitted only once."""
        path = self.searcher_dir / "key"
        if not path.exists():
            write_atomically(path, uuid.uuid4().hex.encode())
        return path.read_text()
