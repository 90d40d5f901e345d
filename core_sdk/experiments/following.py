"""An experiment as it goes on, read from its journal of events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import get_args

from core_sdk.experiments.calling import ensure_master
from core_sdk.experiments.experiment import Experiment
from core_sdk.experiments.submitted import SubmittedExperiment
from core_sdk.journal import read_journal
from core_sdk.records import Event
from core_sdk.tracking.home import Home

_PAUSE_S = 0.2
# How often it is looked whether a master still runs.
_MASTER_S = 5.0


class FollowedExperiment:
    """Reads the events of a submitted experiment, from the first one."""

    def __init__(self, home: Home, experiment_id: int) -> None:
        """Raises `ExperimentNotFoundError`, also for an experiment that was not submitted."""
        submitted = SubmittedExperiment(home, experiment_id)
        self.home = home
        self.name = submitted.folder.read().name
        self.searcher = submitted.config.searcher
        self.experiment = Experiment(experiment_id, submitted.config)
        self._path = submitted.folder.events_path
        self._offset = 0

    def read(self) -> Iterator[Event]:
        """Each new event, after it was applied."""
        with contextlib.suppress(FileNotFoundError):
            for chunk in read_journal(self._path, self._offset):
                self._offset = chunk.end_offset
                for record in chunk.records:
                    if isinstance(record, get_args(Event)):
                        self.experiment.apply(record)
                        yield record

    def follow(self, pause_s: float = _PAUSE_S) -> Iterator[list[Event]]:
        """The new events at least several times a second, until the experiment has ended.

        If its master dies, another one is started.
        """
        asked = time.monotonic()
        while True:
            yield list(self.read())
            if self.experiment.is_ended:
                return
            if time.monotonic() - asked > _MASTER_S:
                asked = time.monotonic()
                ensure_master(self.home.root)
            time.sleep(pause_s)
