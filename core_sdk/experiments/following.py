"""Follows an experiment by reading its journal of events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from core_sdk.errors import RecordDamagedError
from core_sdk.experiments.events import read_new_events
from core_sdk.experiments.experiment import Experiment
from core_sdk.experiments.reviving import keep_going
from core_sdk.experiments.submitted import SubmittedExperiment
from core_sdk.records import Event
from core_sdk.tracking.home import Home

_PAUSE_S = 0.2
# The time between two checks that a master still runs.
_MASTER_S = 5.0


class FollowedExperiment:
    """Reads the events of a submitted experiment, from the first one."""

    def __init__(self, home: Home, experiment_id: int) -> None:
        """Raises `RecordDamagedError`, and `ExperimentNotFoundError`, also for an experiment that was not submitted."""
        submitted = SubmittedExperiment(home, experiment_id)
        record = submitted.folder.read()  # read before the events, since it has the least number of them
        self.home = home
        self.name = record.name
        self.searcher = submitted.config.searcher
        self.experiment = Experiment(experiment_id, submitted.config)
        self._path = submitted.folder.events_path
        self._offset = 0
        self._least_events = 0 if record.search is None else max(1, record.search.num_events)

    def read(self) -> Iterator[Event]:
        """Yields each new event after it was applied.

        Raises `RecordDamagedError` if an event is damaged or missing, since the others may mean something else then.
        """
        with contextlib.suppress(FileNotFoundError):
            for events, end_offset in read_new_events(self._path, self._offset):
                self._offset = end_offset
                for event in events:
                    self._apply(event)
                    yield event
        if self.experiment.num_events < self._least_events:
            problem = f"it has {self.experiment.num_events} events, and had {self._least_events}"
            raise RecordDamagedError(self._path, problem)

    def follow(self, pause_s: float = _PAUSE_S) -> Iterator[list[Event]]:
        """Yields a list of new events, which may be empty, every `pause_s` until the experiment has ended.

        If the master dies, another one is started. Raises `ExperimentStateError` if the experiment stands still because
        its files are damaged.
        """
        asked = time.monotonic()
        while True:
            yield list(self.read())
            if self.experiment.is_ended:
                return
            if time.monotonic() - asked > _MASTER_S:
                asked = time.monotonic()
                keep_going(self.home, self.experiment.experiment_id)
            time.sleep(pause_s)

    def _apply(self, event: Event) -> None:
        try:
            self.experiment.apply(event)
        except Exception as error:  # an event that does not follow from the others may fail in any way
            problem = f"event {self.experiment.num_events} does not follow from those before it ({error!r})"
            raise RecordDamagedError(self._path, problem) from error
