"""Follows an experiment, and keeps its best trial so far."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from core_sdk.experiments.following import FollowedExperiment
from core_sdk.records import Event, Metric, ValidationRead, from_json
from core_sdk.tracking import Home


class Follower(FollowedExperiment):
    """Follows an experiment, and compares the values that the searcher reads of its trials."""

    def __init__(self, home: Home, experiment_id: int) -> None:
        super().__init__(home, experiment_id)
        self.best: dict[UUID, Metric] = {}
        """The best value of the searcher's metric, by trial. NaN is ignored."""
        self.points: dict[UUID, dict[float, Metric]] = {}
        """The values that the searcher has read of each trial, by length; empty if it reads no lengths."""

    @property
    def best_trial(self) -> tuple[int, Metric] | None:
        """The id and the value of the best trial so far; None if there is none."""
        choose = min if self.searcher.smaller_is_better else max
        request_id = choose(self.best, key=self.best.__getitem__, default=None)
        trial_id = None if request_id is None else self.experiment.trials[request_id].trial_id
        return None if request_id is None or trial_id is None else (trial_id, self.best[request_id])

    def read(self) -> Iterator[Event]:
        for event in super().read():
            if isinstance(event, ValidationRead):
                self._compare(event)
            yield event

    def _compare(self, event: ValidationRead) -> None:
        value = from_json(event.metric)
        choose = min if self.searcher.smaller_is_better else max
        if not isinstance(value, int | float):
            return  # a user's own search method may be told any value
        if event.length is not None:
            self.points.setdefault(event.request_id, {})[event.length] = value
        if value == value:  # not NaN
            self.best[event.request_id] = choose(value, self.best.get(event.request_id, value))
