"""What a home holds, as a server remembers it between questions."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from core_sdk.tracking import HomeTracker, View
from core_sdk.tracking.finding.facts import Facts, extremes_by_name, facts
from core_sdk.tracking.rows import ExperimentRow

_T = TypeVar("_T")

# A look at 10^4 trials takes a fifth of a second of a processor that trains.
_LEAST_AGE_S = 0.5
_PAUSES = 3
"""How many times as long as a look took, the next one waits."""


@dataclass(frozen=True)
class Snapshot:
    """All trials and experiments as of one moment."""

    trials: Mapping[int, Facts] = field(default_factory=dict)
    experiments: Mapping[int, ExperimentRow] = field(default_factory=dict)


class Records:
    """Keeps one view open, from construction to `close`. Any thread may ask; one question is answered at a time."""

    def __init__(self, tracker: HomeTracker, *, can_act: bool = True) -> None:
        self.tracker = tracker
        self.can_act = can_act
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._view = self._stack.enter_context(tracker.view())
        self._marks: dict[int, str] = {}
        self._snapshot = Snapshot()
        self._extremes: dict[int, tuple[str, Mapping[str, Any]]] = {}
        self._next_look = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._stack.close()

    def ask(self, question: Callable[[View], _T]) -> _T:
        """The answer from the records as of the last look, which is at most about a second old."""
        with self._lock:
            self._look()
            return question(self._view)

    def snapshot(self) -> Snapshot:
        with self._lock:
            self._look()
            return self._snapshot

    def with_extremes(self) -> Snapshot:
        """As `snapshot`, with the extremes of all metrics, which takes a look at every point that is new."""
        with self._lock:
            self._look()
            for trial_id in self._snapshot.trials:
                mark = self._marks[trial_id]
                if self._extremes.get(trial_id, ("", {}))[0] != mark:
                    self._extremes[trial_id] = mark, extremes_by_name(self._view.summary(trial_id))
            return Snapshot(
                {
                    trial_id: replace(one, values={**self._extremes[trial_id][1], **one.values})
                    for trial_id, one in self._snapshot.trials.items()
                },
                self._snapshot.experiments,
            )

    def forget(self) -> None:
        """Lets the next question look at the records anew: somebody has just changed them through us."""
        with self._lock:
            self._next_look = 0.0

    def _look(self) -> None:
        start = time.monotonic()
        if start < self._next_look:
            return
        self._view.refresh()
        marks = self._view.marks()
        known = self._snapshot.trials
        doubtful = [
            trial_id
            for trial_id, mark in marks.items()
            # Whether a process lives stands in no record.
            if self._marks.get(trial_id) != mark or trial_id not in known or known[trial_id].row.state == "ACTIVE"
        ]
        trials = {trial_id: known[trial_id] for trial_id in marks if trial_id in known}
        if doubtful:
            last_values = self._view.last_values(doubtful)
            for row in self._view.trials(trial_ids=doubtful):
                trials[row.trial_id] = facts(row, last_values.get(row.trial_id, {}), {})
        experiments = {row.experiment_id: row for row in self._view.experiments()}
        self._marks, self._snapshot = marks, Snapshot(dict(sorted(trials.items())), experiments)
        end = time.monotonic()
        self._next_look = end + max(_LEAST_AGE_S, _PAUSES * (end - start))
