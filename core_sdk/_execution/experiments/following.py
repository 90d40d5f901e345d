"""Follows an experiment by reading its journal of events, and keeps its best trial so far."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from uuid import UUID

from core_sdk._execution.experiments.events import read_new_events
from core_sdk._execution.experiments.experiment import ExperimentStateMachine
from core_sdk._execution.experiments.reviving import keep_going
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._ground.files import fingerprint
from core_sdk._ground.records import Event, Metric, SearcherMetric, ValidationRead, from_json
from core_sdk._home.folders import Home
from core_sdk.errors import RecordDamagedError

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
        self.experiment = ExperimentStateMachine(experiment_id, submitted.config)
        self._path = submitted.folder.events_path
        self._offset = self._fingerprint = 0
        self._least_events = 0 if record.search is None else max(1, record.search.num_events)

    def read(self) -> Iterator[Event]:
        """Yields each new event after it was applied.

        Raises `RecordDamagedError` if an event is damaged or missing, since the others may mean something else then.
        """
        with contextlib.suppress(FileNotFoundError):
            if fingerprint(self._path, self._offset) != self._fingerprint:
                raise RecordDamagedError(self._path, "it was replaced by another one while it was read")
            for events, end_offset in read_new_events(self._path, self._offset):
                self._offset, self._fingerprint = end_offset, fingerprint(self._path, end_offset)
                for event in events:
                    self._apply(event)
                    yield event
        if self.experiment.num_events < self._least_events:
            problem = f"it has {self.experiment.num_events} events, and had {self._least_events}"
            raise RecordDamagedError(self._path, problem)

    def follow(self, pause_s: float = _PAUSE_S) -> Iterator[list[Event]]:
        """Yields a list of new events, which may be empty, every `pause_s` until the experiment has ended.

        If the master dies, another one is started. Raises `ExperimentError` if the experiment stands still because
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


class Follower(FollowedExperiment):
    """Follows an experiment, and compares the values that the searcher reads of its trials."""

    def __init__(self, home: Home, experiment_id: int) -> None:
        super().__init__(home, experiment_id)
        self._metric = SearcherMetric(name=self.searcher.metric, smaller_is_better=self.searcher.smaller_is_better)
        self.best: dict[UUID, Metric] = {}
        """The best finite value of the searcher's metric, by trial."""
        self.points: dict[UUID, dict[float, Metric]] = {}
        """The values that the searcher has read of each trial, by length; empty if it reads no lengths."""

    @property
    def best_trial(self) -> tuple[int, Metric] | None:
        """The id and the value of the best trial so far; None if there is none."""
        trials = self.experiment.trials
        local = self.home.local_trials(self.experiment.experiment_id)
        reached = {local(trials[one].trial_id or 0): value for one, value in self.best.items()}
        trial_id = next(iter(self._metric.best_first(sorted(reached), reached.get)), None)
        return None if trial_id is None else (trial_id, reached[trial_id])

    def read(self) -> Iterator[Event]:
        for event in super().read():
            if isinstance(event, ValidationRead):
                self._compare(event)
            yield event

    def _compare(self, event: ValidationRead) -> None:
        value = from_json(event.metric)
        if not isinstance(value, int | float):
            return  # a user's own search method may be told any value
        if event.length is not None:
            self.points.setdefault(event.request_id, {})[event.length] = value
        if self._metric.is_better(value, self.best.get(event.request_id, math.nan)):
            self.best[event.request_id] = value
