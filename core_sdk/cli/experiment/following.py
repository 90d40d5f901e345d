"""An experiment as it goes on, read from its journal of events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import get_args
from uuid import UUID

from core_sdk.experiments.calling import ensure_master
from core_sdk.experiments.experiment import Experiment
from core_sdk.experiments.submitted import SubmittedExperiment
from core_sdk.journal import read_journal
from core_sdk.records import Event, Metric, ValidationRead, number_from_json
from core_sdk.tracking import Home

_PAUSE_S = 0.2
# How often it is looked whether a master still runs.
_MASTER_S = 5.0


class Follower:
    """Reads the events of a submitted experiment, from the first one."""

    def __init__(self, home: Home, experiment_id: int) -> None:
        """Raises `ExperimentNotFoundError`, also for an experiment that was not submitted."""
        submitted = SubmittedExperiment(home, experiment_id)
        self.home = home
        self.name = submitted.folder.read().name
        self.searcher = submitted.config.searcher
        self.experiment = Experiment(experiment_id, submitted.config)
        self.best: dict[UUID, Metric] = {}
        """The best value of the searcher's metric, by trial; NaN is none."""
        self._path = submitted.folder.events_path
        self._offset = 0

    @property
    def best_trial(self) -> tuple[int, Metric] | None:
        """The best trial so far, and its value."""
        choose = min if self.searcher.smaller_is_better else max
        request_id = choose(self.best, key=self.best.__getitem__, default=None)
        trial_id = None if request_id is None else self.experiment.trials[request_id].trial_id
        return None if request_id is None or trial_id is None else (trial_id, self.best[request_id])

    def read(self) -> Iterator[Event]:
        """Each new event, after it was applied."""
        with contextlib.suppress(FileNotFoundError):
            for chunk in read_journal(self._path, self._offset):
                self._offset = chunk.end_offset
                for record in chunk.records:
                    if isinstance(record, get_args(Event)):
                        self.experiment.apply(record)
                        self._compare(record)
                        yield record

    def follow(self) -> Iterator[list[Event]]:
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
            time.sleep(_PAUSE_S)

    def _compare(self, event: Event) -> None:
        if not isinstance(event, ValidationRead) or event.metric is None:
            return
        value = metric_of(event.metric)
        choose = min if self.searcher.smaller_is_better else max
        if value == value:  # not NaN
            self.best[event.request_id] = choose(value, self.best.get(event.request_id, value))


def metric_of(recorded: Metric | str) -> Metric:
    """The number that an event holds."""
    return number_from_json(recorded) if isinstance(recorded, str) else recorded
