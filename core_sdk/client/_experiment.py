"""An experiment, seen from outside its scripts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

from core_sdk.client._checkpoint import Checkpoint, list_checkpoints
from core_sdk.client._metrics import to_datetime
from core_sdk.client._order import CheckpointSortBy, ExperimentState, OrderBy, TrialSortBy, in_order
from core_sdk.client._trial import Trial
from core_sdk.errors import PausedError
from core_sdk.records import ExperimentRecord, check_name
from core_sdk.tracking.deletion import delete_experiment
from core_sdk.tracking.rows import ExperimentRow, TrialRow

if TYPE_CHECKING:
    from core_sdk.client._tracker import Tracker


class Experiment:
    """An experiment as it was when it was looked up; `reload` looks again.

    There is no `set_name`: a script finds its experiment by the name, and its next start would make another one.
    """

    def __init__(self, tracker: Tracker, row: ExperimentRow) -> None:
        self._tracker = tracker
        self._take(row)

    def __repr__(self) -> str:
        return f"Experiment(id={self.id}, name={self.name!r}, state={self.state.value})"

    def _take(self, row: ExperimentRow) -> None:
        self.id = row.experiment_id
        self.name = row.name
        self.start_time = to_datetime(row.created)
        self.labels: Set[str] = frozenset(row.labels)
        self.description = row.description
        self.num_trials = row.num_trials
        self.state = ExperimentState(row.state)

    def list_trials(self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC) -> list[Trial]:
        """Trials without a value to sort by, such as the end of one that runs, come last."""
        return list(self.iter_trials(sort_by, order_by))

    def iter_trials(
        self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC, limit: int | None = None
    ) -> Iterator[Trial]:
        """The first `limit` of `list_trials`."""
        with self._tracker.index() as index:
            rows = index.trials(experiment_id=self.id)
        return (Trial(self._tracker, row) for row in in_order(rows, _TRIAL_KEYS[sort_by], order_by, limit))

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        """The trial with the lowest id, as soon as there is one; looks every `interval` seconds."""
        while not (trials := self.list_trials()):
            time.sleep(interval)
        return trials[0]

    def wait(self, interval: float = 5.0) -> ExperimentState:
        """Returns when no trial is active any more; looks every `interval` seconds.

        So it returns at once before the first trial: `await_first_trial` waits for that one. Raises `PausedError` if a
        trial is paused at the end.
        """
        self.reload()
        while self.state is ExperimentState.ACTIVE:
            time.sleep(interval)
            self.reload()
        if self.state is ExperimentState.PAUSED:
            raise PausedError(f"experiment {self.id}")
        return self.state

    def list_checkpoints(
        self,
        sort_by: CheckpointSortBy | str | None = None,
        order_by: OrderBy | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """The checkpoints of all trials, as `Trial.list_checkpoints` lists them."""
        return list_checkpoints(self._tracker, sort_by, order_by, max_results, experiment_id=self.id)

    def set_labels(self, labels: Iterable[str]) -> None:
        if isinstance(labels, str):
            raise TypeError(f"labels must be a set of strings, not the string {labels!r}")
        with self._edit() as record:
            record.labels = sorted({check_name("label", label) for label in labels})

    def add_label(self, label: str) -> None:
        with self._edit() as record:
            record.labels = list(dict.fromkeys([*record.labels, check_name("label", label)]))

    def remove_label(self, label: str) -> None:
        """Does nothing if the experiment does not have it."""
        with self._edit() as record:
            record.labels = [other for other in record.labels if other != label]

    def set_description(self, description: str) -> None:
        if not isinstance(description, str):
            raise TypeError(f"description must be a string, not {type(description).__name__}")
        with self._edit() as record:
            record.description = description

    def delete(self) -> None:
        """Deletes the experiment with its trials, their records and checkpoints. Raises `TrialRunningError`."""
        delete_experiment(self._tracker.home, self.id)

    def reload(self) -> None:
        with self._tracker.index() as index:
            self._take(index.experiment(self.id))

    @contextlib.contextmanager
    def _edit(self) -> Iterator[ExperimentRecord]:
        with self._tracker.home.experiment(self.id).edit() as record:
            yield record
        self.reload()


_TRIAL_KEYS: Mapping[TrialSortBy, Callable[[TrialRow], Any]] = {
    TrialSortBy.ID: lambda row: row.trial_id,
    TrialSortBy.START_TIME: lambda row: row.created,
    TrialSortBy.END_TIME: lambda row: row.ended,
    TrialSortBy.STATE: lambda row: row.state,
    TrialSortBy.BATCHES_PROCESSED: lambda row: row.steps_completed,
    TrialSortBy.RESTARTS: lambda row: row.num_attempts,
}
