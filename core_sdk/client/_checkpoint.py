"""A checkpoint, seen from outside the training."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_sdk.client._metrics import to_datetime
from core_sdk.client._order import CheckpointSortBy, CheckpointState, OrderBy, in_order
from core_sdk.client._without_master import needs_master
from core_sdk.records import (
    CheckpointMetadataSet,
    CheckpointPinned,
    CheckpointUnpinned,
    Metric,
    Record,
    SearcherMetric,
    check_name,
    to_json,
)
from core_sdk.storage import Storage, storage_from_url
from core_sdk.tracking.deletion import delete_checkpoint, delete_files
from core_sdk.tracking.rows import CheckpointRow

if TYPE_CHECKING:
    from core_sdk.client._experiment import Experiment
    from core_sdk.client._tracker import Tracker
    from core_sdk.client._trial import Trial
    from core_sdk.tracking.index import Index


@dataclass(frozen=True)
class CheckpointTraining:
    """The training that stored a checkpoint."""

    experiment_config: dict[str, Any]
    """As `Experiment.config`."""
    experiment_id: int
    trial_id: int
    hparams: dict[str, Any]
    validation_metrics: dict[str, dict[str, Metric]]
    """Under "avgMetrics" what the same attempt reported of the group "validation" at the checkpoint's step.

    Empty if it reported nothing.
    """


class DownloadMode(enum.Enum):
    """Which way files come. Without a master each means the same: from the storage."""

    DIRECT = "direct"
    MASTER = "master"
    AUTO = "auto"


class Checkpoint:
    """A checkpoint as it was when it was looked up; `reload` looks again."""

    def __init__(self, tracker: Tracker, row: CheckpointRow) -> None:
        self._tracker = tracker
        self._take(row)

    def __repr__(self) -> str:
        return f"Checkpoint(uuid={self.uuid!r}, trial_id={self.trial_id}, state={self.state.name})"

    def _take(self, row: CheckpointRow) -> None:
        self._row = row
        self.uuid = row.storage_id
        self.trial_id = row.trial_id
        self.experiment_id = row.experiment_id
        self.trial_run_id = row.attempt
        self.steps_completed = row.steps_completed
        self.task_id = f"trial-{row.trial_id}"
        self.allocation_id = f"trial-{row.trial_id}.{row.attempt}"
        self.state = CheckpointState[row.state]
        self.report_time = to_datetime(row.time)
        self.metadata = row.metadata
        self.resources = row.resources
        self.size_bytes = row.size_bytes
        self.storage = row.storage
        self.is_pinned = row.is_pinned
        self.pin_note = row.pin_note

    @property
    def training(self) -> CheckpointTraining:
        with self._tracker.index() as index:
            hparams = index.trial(self.trial_id).hparams
            metrics = _validation_metrics(index, [self._row]).get(self.uuid)
        return CheckpointTraining(
            experiment_config=self.get_experiment().config,
            experiment_id=self.experiment_id,
            trial_id=self.trial_id,
            hparams=hparams,
            validation_metrics={"avgMetrics": metrics} if metrics else {},
        )

    def get_trial(self) -> Trial:
        return self._tracker.get_trial(self.trial_id)

    def get_experiment(self) -> Experiment:
        return self._tracker.get_experiment(self.experiment_id)

    def download(self, path: str | os.PathLike[str] | None = None, mode: DownloadMode | str = DownloadMode.AUTO) -> str:
        """Copies the files into `path`, by default `checkpoints/<uuid>`, and gives that path.

        Every file is verified. Files that are there already, whole, are not copied again. Its metadata.json is the one
        that was stored. After an interruption it goes on. Raises `CheckpointNotFoundError`, `CheckpointDamagedError`,
        `NotEnoughSpaceError`, or a `StorageError`.
        """
        DownloadMode(mode)  # raises for what is none
        directory = Path("checkpoints", self.uuid) if path is None else Path(path)
        with self._opened_storage() as storage:
            storage.download(self.uuid, directory)
        return str(directory)

    def verify(self) -> None:
        """Reads every stored file; raises `CheckpointNotFoundError`, or `CheckpointDamagedError` naming the file.

        A `StorageError` says nothing of it.
        """
        with self._opened_storage() as storage:
            storage.verify(self.uuid)

    def write_metadata_file(self, path: str | os.PathLike[str]) -> None:
        """Writes `metadata` as JSON."""
        Path(path).write_text(json.dumps(self.metadata, indent=2), encoding="utf-8")

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds keys to the tracker's `metadata`, and updates those that are there; the stored files stay as they are.

        Raises `TypeError` for what JSON cannot keep.
        """
        if not isinstance(metadata, Mapping):
            raise TypeError(f"metadata must be a dict, not {type(metadata).__name__}")
        self._change(
            CheckpointMetadataSet(time=time.time(), storage_id=self.uuid, metadata=to_json(metadata, "metadata"))
        )

    def remove_metadata(self, keys: Iterable[str]) -> None:
        """Takes keys from the tracker's `metadata`; those that it does not have are passed over."""
        if isinstance(keys, str):
            raise TypeError(f"keys must be a list of strings, not the string {keys!r}")
        removed = [check_name("the metadata key", key) for key in keys]
        self._change(CheckpointMetadataSet(time=time.time(), storage_id=self.uuid, removed=removed))

    def pin(self, note: str = "") -> None:
        """Keeps the checkpoint from being deleted, by collection or by hand; `note` says why."""
        note = to_json(note, "the note")
        if not isinstance(note, str):
            raise TypeError(f"the note must be a string, not {type(note).__name__}")
        self._change(CheckpointPinned(time=time.time(), storage_id=self.uuid, note=note))

    def unpin(self) -> None:
        """Does nothing if it is not pinned."""
        self._change(CheckpointUnpinned(time=time.time(), storage_id=self.uuid))

    def remove_files(self, globs: Sequence[str], *, force: bool = False) -> None:
        """Deletes the files and directories that `globs` match ("optimizer", "*.pt", "**/*.tmp").

        What remains is as whole as before, and no trial goes on from it; without a rest, the checkpoint is deleted.
        Raises as `delete`.
        """
        delete_files(self._tracker.home.trial(self.trial_id), self.storage, self.uuid, globs, is_forced=force)
        self.reload()

    def delete(self, *, force: bool = False) -> None:
        """Deletes the files, where they are still there, and marks the checkpoint as deleted.

        Raises `CheckpointProtectedError` for one that is pinned, that a trial began with, or that a running attempt
        uses; `force` passes over the first two. Raises a `StorageError` where the storage cannot be asked.
        """
        delete_checkpoint(self._tracker.home.trial(self.trial_id), self.storage, self.uuid, is_forced=force)
        self.reload()

    get_pachyderm_commit = needs_master("Checkpoint.get_pachyderm_commit()", "Pachyderm's commits are not recorded")
    get_metrics = needs_master(
        "Checkpoint.get_metrics()", "`iter_metrics(group)` of the trial that used the checkpoint gives what it reported"
    )

    def _opened_storage(self) -> contextlib.closing[Storage]:
        return contextlib.closing(storage_from_url(self.storage))

    def _change(self, record: Record) -> None:
        self._tracker.home.trial(self.trial_id).append_change(record)
        self.reload()

    def reload(self) -> None:
        with self._tracker.index() as index:
            self._take(index.checkpoint(self.uuid))


def list_checkpoints(
    tracker: Tracker,
    sort_by: CheckpointSortBy | str | None,
    order_by: OrderBy | None,
    max_results: int | None,
    *,
    trial_id: int | None = None,
    experiment_id: int,
) -> list[Checkpoint]:
    """The contract is `Trial.list_checkpoints`'s."""
    if (sort_by is None) != (order_by is None):
        given, missing = ("sort_by", "order_by") if order_by is None else ("order_by", "sort_by")
        raise ValueError(f"{given} was given without {missing}: give both, or neither")
    metric = searcher_metric(tracker, experiment_id)
    if sort_by is CheckpointSortBy.SEARCHER_METRIC:
        sort_by = known_metric(metric, experiment_id).name
    with tracker.index() as index:
        rows = [
            row
            for row in index.checkpoints(trial_id=trial_id, experiment_id=experiment_id)
            if row.state != CheckpointState.DELETED.name
        ]
        if sort_by is not None:
            key = _sort_key(index, rows, sort_by)
        elif metric is not None:
            key, order_by = _metric_key(index, rows, metric.name), best_first(metric.smaller_is_better)
        else:
            return [Checkpoint(tracker, row) for row in in_order(rows, _as_listed, OrderBy.ASC, max_results)]
    return [Checkpoint(tracker, row) for row in in_order(rows, key, order_by or OrderBy.ASC, max_results)]


def top_checkpoints(
    tracker: Tracker,
    sort_by: str | None,
    smaller_is_better: bool | None,
    *,
    trial_id: int | None = None,
    experiment_id: int,
) -> list[Checkpoint]:
    """By a validation metric, the best first. The contract is `Trial.top_checkpoint`'s."""
    metric = searcher_metric(tracker, experiment_id)
    if sort_by is None:
        sort_by = known_metric(metric, experiment_id).name
        smaller_is_better = None
    if smaller_is_better is None:
        if metric is None or metric.name != sort_by:
            raise ValueError(f"nothing says whether a smaller {sort_by!r} is better: give smaller_is_better")
        smaller_is_better = metric.smaller_is_better
    found = list_checkpoints(
        tracker, sort_by, best_first(smaller_is_better), None, trial_id=trial_id, experiment_id=experiment_id
    )
    if not found:
        raise ValueError(
            f"{f'trial {trial_id}' if trial_id else f'experiment {experiment_id}'} has no checkpoint: there is no best"
        )
    return found


def searcher_metric(tracker: Tracker, experiment_id: int) -> SearcherMetric | None:
    """By what checkpoints of the experiment are called better, if somebody has said so."""
    return tracker.home.experiment(experiment_id).read().searcher_metric


def known_metric(metric: SearcherMetric | None, experiment_id: int) -> SearcherMetric:
    if metric is None:
        raise ValueError(f"experiment {experiment_id} has no searcher metric: name the metric to sort by")
    return metric


def best_first(smaller_is_better: bool) -> OrderBy:
    return OrderBy.ASC if smaller_is_better else OrderBy.DESC


def _as_listed(row: CheckpointRow) -> int:
    return 0  # the index gives the newest first


def _sort_key(
    index: Index, rows: Sequence[CheckpointRow], sort_by: CheckpointSortBy | str
) -> Callable[[CheckpointRow], Any]:
    if not isinstance(sort_by, str):
        return _SORT_KEYS[sort_by]
    if rows and sort_by not in (names := _metric_names(index, {row.trial_id for row in rows})):
        raise ValueError(f"no validation metric is called {sort_by!r}; there are {', '.join(sorted(names)) or 'none'}")
    return _metric_key(index, rows, sort_by)


_SORT_KEYS: Mapping[CheckpointSortBy, Callable[[CheckpointRow], Any]] = {
    CheckpointSortBy.UUID: lambda row: row.storage_id,
    CheckpointSortBy.TRIAL_ID: lambda row: row.trial_id,
    CheckpointSortBy.BATCH_NUMBER: lambda row: row.steps_completed,
    CheckpointSortBy.END_TIME: lambda row: row.time,
    CheckpointSortBy.STATE: lambda row: row.state,
}


def _metric_names(index: Index, trial_ids: Iterable[int]) -> set[str]:
    return {name for trial_id in trial_ids for name in index.summary(trial_id).get("validation", {})}


def _metric_key(index: Index, rows: Sequence[CheckpointRow], name: str) -> Callable[[CheckpointRow], Any]:
    metrics = _validation_metrics(index, rows)
    return lambda row: metrics.get(row.storage_id, {}).get(name)


def _validation_metrics(index: Index, rows: Sequence[CheckpointRow]) -> dict[str, dict[str, Metric]]:
    """By storage id: what the attempt that stored the checkpoint validated at its step."""
    reported: dict[tuple[int, int, int | None], dict[str, Metric]] = {}
    for trial_id in {row.trial_id for row in rows}:
        # Also the superseded: they are what was measured of these very weights.
        for report in index.reports(trial_id, group="validation", superseded=True):
            reported.setdefault((trial_id, report.attempt, report.steps_completed), {}).update(report.metrics)
    places = {row.storage_id: (row.trial_id, row.attempt, row.steps_completed) for row in rows}
    return {storage_id: reported[place] for storage_id, place in places.items() if place in reported}
