"""An experiment, seen from outside its scripts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

import msgspec

from core_sdk.client._checkpoint import Checkpoint, known_metric, list_checkpoints, searcher_metric, top_checkpoints
from core_sdk.client._metrics import to_datetime
from core_sdk.client._order import CheckpointSortBy, ExperimentState, OrderBy, TrialSortBy, TrialState, in_order
from core_sdk.client._trial import Trial
from core_sdk.client._without_master import needs_master
from core_sdk.errors import ExperimentNotRunningError, PausedError, TrialNotRunningError
from core_sdk.records import ExperimentRecord, check_name, from_json
from core_sdk.tracking.deletion import delete_experiment, trials_of
from core_sdk.tracking.rows import ExperimentRow, TrialRow

if TYPE_CHECKING:
    from core_sdk.client._tracker import Tracker
    from core_sdk.tracking.index import Index


class Experiment:
    """An experiment as it was when it was looked up; `reload` looks again."""

    archived = False
    """Nothing is archived here."""

    def __init__(self, tracker: Tracker, row: ExperimentRow) -> None:
        self._tracker = tracker
        self._take(row)

    def __repr__(self) -> str:
        return f"Experiment(id={self.id}, name={self.name!r}, state={self.state.name})"

    def _take(self, row: ExperimentRow) -> None:
        self.id = row.experiment_id
        self.name = row.name
        self.start_time = to_datetime(row.created)
        self.labels: Set[str] = frozenset(row.labels)
        self.description = row.description
        self.num_trials = row.num_trials
        self.state = ExperimentState[row.state]

    @property
    def progress(self) -> float | None:
        """The mean of what its trials say of their progress; None if none says anything."""
        told = [trial.progress for trial in self.list_trials() if trial.progress is not None]
        return sum(told) / len(told) if told else None

    @property
    def notes(self) -> str:
        return self._record().notes

    @property
    def config(self) -> dict[str, Any]:
        """What is known of the experiment, in the form of an experiment configuration.

        "hyperparameters" and "data" are those of its first trial, each hyperparameter as a constant; "searcher" has the
        "metric" if one is known, and "checkpoint_storage" how many checkpoints are kept.
        """
        record = self._record()
        config: dict[str, Any] = {
            "name": record.name,
            "description": record.description,
            "labels": list(record.labels),
            "searcher": {"name": "single"} | _plain(record.searcher_metric, name="metric"),
            "checkpoint_storage": _plain(record.retention),
        }
        if (first := next(trials_of(self._tracker.home, self.id), None)) is not None:
            trial = first.read_record()
            config["data"] = from_json(trial.data)
            config["hyperparameters"] = {
                name: {"type": "const", "val": value} for name, value in from_json(trial.hparams).items()
            }
            if trial.max_length is not None:
                config["searcher"]["max_length"] = trial.max_length
        return config

    def list_trials(self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC) -> list[Trial]:
        """Trials without a value to sort by, such as the end of one that runs, come last."""
        return list(self.iter_trials(sort_by, order_by))

    def iter_trials(
        self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC, limit: int | None = None
    ) -> Iterator[Trial]:
        """The first `limit` of `list_trials`."""
        with self._tracker.index() as index:
            rows = index.trials(experiment_id=self.id)
            key = _TRIAL_KEYS.get(sort_by) or self._metric_key(index, sort_by)
            rows = in_order(rows, key, order_by, limit)
        return (Trial(self._tracker, row) for row in rows)

    get_trials = list_trials

    def _metric_key(self, index: Index, sort_by: TrialSortBy) -> Callable[[TrialRow], Any]:
        metric = known_metric(searcher_metric(self._tracker, self.id), self.id)
        best = "min" if metric.smaller_is_better else "max"
        figure = best if sort_by is TrialSortBy.BEST_VALIDATION_METRIC else "last"
        return lambda row: index.summary(row.trial_id).get("validation", {}).get(metric.name, {}).get(figure)

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

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """As `Trial.top_checkpoint`, over all trials."""
        return self.top_n_checkpoints(1, sort_by, smaller_is_better)[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        """The best checkpoint of each of the `limit` best trials, as `top_checkpoint` finds them, the best first."""
        found = top_checkpoints(self._tracker, sort_by, smaller_is_better, experiment_id=self.id)
        best: dict[int, Checkpoint] = {}
        for checkpoint in found:
            best.setdefault(checkpoint.trial_id, checkpoint)
        return list(best.values())[:limit]

    def pause(self) -> None:
        """Asks each trial that runs to stop, as `Trial.pause` does. Raises `ExperimentNotRunningError` if none runs."""
        running = [trial for trial in self.list_trials() if trial.state is TrialState.ACTIVE]
        if not running:
            raise ExperimentNotRunningError(self.id, "pause")
        for trial in running:
            with contextlib.suppress(TrialNotRunningError):  # it has ended meanwhile
                trial.pause()

    def set_name(self, name: str) -> None:
        """Renames the experiment. A script that begins a trial under the old name makes another experiment.

        Raises `NameTakenError`.
        """
        self._tracker.home.experiment(self.id).rename(name)
        self.reload()

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

    def set_notes(self, notes: str) -> None:
        if not isinstance(notes, str):
            raise TypeError(f"notes must be a string, not {type(notes).__name__}")
        with self._edit() as record:
            record.notes = notes

    activate = needs_master("Experiment.activate()", "`core-sdk trial resume ID` goes on with a trial that is paused")
    archive = unarchive = needs_master("Experiment.archive()", "A label tells the experiments that you are done with")
    cancel = needs_master("Experiment.cancel()", "pause() stops its trials")
    kill = needs_master("Experiment.kill()", "pause() stops its trials; `kill` ends a process that does not stop")
    move_to_project = needs_master(
        "Experiment.move_to_project()", "There are no projects: labels tell experiments apart"
    )
    delete_tensorboard_files = needs_master(
        "Experiment.delete_tensorboard_files()", "delete() removes them with all other records"
    )
    download_code = needs_master("Experiment.download_code()", "The code stays where it was run from")
    get_pachyderm_config = needs_master("Experiment.get_pachyderm_config()", "Pachyderm's settings are not recorded")

    def delete(self, *, force: bool = False) -> None:
        """Deletes the experiment with its trials, their records and checkpoints. Raises as `Trial.delete` does."""
        delete_experiment(self._tracker.home, self.id, is_forced=force)

    def reload(self) -> None:
        with self._tracker.index() as index:
            self._take(index.experiment(self.id))

    def _record(self) -> ExperimentRecord:
        return self._tracker.home.experiment(self.id).read()

    @contextlib.contextmanager
    def _edit(self) -> Iterator[ExperimentRecord]:
        with self._tracker.home.experiment(self.id).edit() as record:
            yield record
        self.reload()


def _plain(value: msgspec.Struct | None, **renamed: str) -> dict[str, Any]:
    fields = {} if value is None else msgspec.structs.asdict(value)
    return {renamed.get(name, name): field for name, field in fields.items()}


_TRIAL_KEYS: Mapping[TrialSortBy, Callable[[TrialRow], Any]] = {
    TrialSortBy.ID: lambda row: row.trial_id,
    TrialSortBy.START_TIME: lambda row: row.created,
    TrialSortBy.END_TIME: lambda row: row.ended,
    TrialSortBy.DURATION: lambda row: (row.ended or time.time()) - row.created,
    TrialSortBy.STATE: lambda row: row.state,
    TrialSortBy.BATCHES_PROCESSED: lambda row: row.steps_completed,
    TrialSortBy.RESTARTS: lambda row: row.num_attempts,
}
