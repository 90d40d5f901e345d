"""Experiments, trials and checkpoints as objects that lead to one another."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shutil
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core_sdk.client._experiment_config import experiment_config
from core_sdk.client._logs import LogLevel, line_filter, log_lines
from core_sdk.client._media import ReportedMedia
from core_sdk.client._metrics import TrialMetrics, frame, to_datetime, trial_metrics
from core_sdk.client._notebook import Shown
from core_sdk.client._orders.checkpoints import (
    Scope,
    list_checkpoints,
    top_checkpoints,
)
from core_sdk.client._orders.order import (
    GOING_ON,
    CheckpointSortBy,
    CheckpointState,
    OrderBy,
    TrainingState,
    TrialSortBy,
)
from core_sdk.client._orders.trials import list_trials
from core_sdk.client._trials_frame import trials_frame
from core_sdk.client._unavailable import unavailable
from core_sdk.errors import ExperimentStateError, PausedError
from core_sdk.experiments.reviving import keep_going
from core_sdk.records import Metric
from core_sdk.steering import checkpoints, experiments, trials
from core_sdk.steering.checks import checked_text
from core_sdk.tracking import Home, open_view
from core_sdk.tracking.rows import CheckpointRow, ExperimentRow, TrialRow

if TYPE_CHECKING:
    from core_sdk.charts.picture import Picture

_BY = "client"


@dataclass(frozen=True)
class CheckpointTraining:
    """The training that stored a checkpoint."""

    experiment_config: dict[str, Any]
    """The value of `Experiment.config`."""
    experiment_id: int
    trial_id: int
    hparams: dict[str, Any]
    validation_metrics: dict[str, dict[str, Metric]]
    """The metrics of the group "validation" that the same attempt reported at the checkpoint's step.

    They are the value of the key "avgMetrics". Empty if it reported none.
    """


class DownloadMode(enum.Enum):
    """The way in which files are downloaded. All modes mean the same here: files come from the storage."""

    DIRECT = "direct"
    MASTER = "master"
    AUTO = "auto"


class Checkpoint(Shown):
    """A checkpoint as it was when it was looked up. `reload` looks it up again."""

    def __init__(self, home: Home, row: CheckpointRow) -> None:
        self._home = home
        self._take(row)

    def __repr__(self) -> str:
        return f"Checkpoint(uuid={self.uuid!r}, trial_id={self.trial_id}, state={self.state.name})"

    def _facts(self) -> Mapping[str, object]:
        return {
            "Checkpoint": self.uuid,
            "Trial": self.trial_id,
            "State": self.state.name,
            "Steps": self.steps_completed,
            "Stored": f"{self.report_time:%Y-%m-%d %H:%M:%S}",
            "Size": f"{self.size_bytes / 1e6:,.1f} MB in {len(self.resources)} files",
            "Storage": self.storage,
            "Pinned": self.pin_note or "yes" if self.is_pinned else None,
        }

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
        with open_view(self._home) as view:
            hparams = view.trial(self.trial_id).hparams
            metrics = view.checkpoint(self.uuid).metrics
        return CheckpointTraining(
            experiment_config=self.get_experiment().config,
            experiment_id=self.experiment_id,
            trial_id=self.trial_id,
            hparams=hparams,
            validation_metrics={"avgMetrics": metrics} if metrics else {},
        )

    def get_trial(self) -> Trial:
        with open_view(self._home) as view:
            return Trial(self._home, view.trial(self.trial_id))

    def get_experiment(self) -> Experiment:
        with open_view(self._home) as view:
            return Experiment(self._home, view.experiment(self.experiment_id))

    def download(self, path: str | os.PathLike[str] | None = None, mode: DownloadMode | str = DownloadMode.AUTO) -> str:
        """Copies the files into the directory `path`, by default `checkpoints/<uuid>`, and returns that path.

        Every file is verified. Files that are already there and intact are not copied again, so that an interrupted
        download can be continued. metadata.json has the metadata as stored, without later changes. Raises
        `CheckpointNotFoundError`, `CheckpointDamagedError`, `NotEnoughSpaceError`, or a `StorageError`.
        """
        DownloadMode(mode)  # raises ValueError for an unknown mode
        directory = Path("checkpoints", self.uuid) if path is None else Path(path)
        from core_sdk.storage import storage_from_url  # imported here, since most calls do not need it

        with contextlib.closing(storage_from_url(self.storage)) as storage:
            storage.download(self.uuid, directory)
        return str(directory)

    def verify(self) -> None:
        """Reads every stored file. Raises `CheckpointNotFoundError`, or `CheckpointDamagedError` naming the bad file.

        A `StorageError` means that the checkpoint could not be read. It may still be intact.
        """
        checkpoints.verify(self._home, self.uuid)

    def write_metadata_file(self, path: str | os.PathLike[str]) -> None:
        """Writes `metadata` as JSON."""
        Path(path).write_text(json.dumps(self.metadata, indent=2), encoding="utf-8")

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds or replaces keys of the tracker's `metadata`. The stored files do not change.

        Raises `TypeError` for values that JSON cannot keep.
        """
        checkpoints.add_metadata(self._home, self.uuid, metadata)
        self.reload()

    def remove_metadata(self, keys: Iterable[str]) -> None:
        """Removes keys from the tracker's `metadata`. Keys that it does not have are ignored."""
        checkpoints.remove_metadata(self._home, self.uuid, keys)
        self.reload()

    def pin(self, note: str = "") -> None:
        """Protects the checkpoint from being deleted, by collection or by hand. `note` says why."""
        checkpoints.pin(self._home, self.uuid, note)
        self.reload()

    def unpin(self) -> None:
        """Removes the pin. Does nothing if there is none."""
        checkpoints.unpin(self._home, self.uuid)
        self.reload()

    def remove_files(self, globs: Sequence[str], *, force: bool = False) -> None:
        """Deletes the files and directories that `globs` match ("optimizer", "*.pt", "**/*.tmp").

        The other files stay readable, but no trial resumes from them. If no file is left, the checkpoint is deleted.
        Raises the errors of `delete`.
        """
        checkpoints.delete_files(self._home, self.uuid, globs, is_forced=force)
        self.reload()

    def delete(self, *, force: bool = False) -> None:
        """Deletes the files, if they are still there, and marks the checkpoint as deleted.

        Raises `CheckpointProtectedError` for a checkpoint that is pinned, that a trial began with, that a running
        attempt uses, or that is a version of a model; `force` ignores the first two. Raises a `StorageError` if the
        storage cannot be reached.
        """
        checkpoints.delete(self._home, self.uuid, is_forced=force)
        self.reload()

    get_pachyderm_commit = unavailable("Checkpoint.get_pachyderm_commit()", "Pachyderm's commits are not recorded")
    get_metrics = unavailable(
        "Checkpoint.get_metrics()", "`iter_metrics(group)` of the trial that used the checkpoint gives what it reported"
    )

    def reload(self) -> None:
        with open_view(self._home) as view:
            self._take(view.checkpoint(self.uuid))


class Training(Shown):
    """The base of trials and experiments, which have checkpoints to choose from and an end to wait for."""

    _home: Home
    _scope: Scope
    _go_on_command: str
    """The command that continues it when it is paused."""
    state: TrainingState

    @abstractmethod
    def reload(self) -> None:
        """Looks the object up again."""

    @abstractmethod
    def plot(self) -> Picture:
        """Draws charts of the metrics, which a notebook shows."""

    def _picture(self) -> Picture:
        return self.plot()

    def _is_going_on(self) -> bool:
        return self.state in GOING_ON

    def list_checkpoints(
        self,
        sort_by: CheckpointSortBy | str | None = None,
        order_by: OrderBy | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """Lists the checkpoints that exist.

        By default, the best comes first if the experiment has a searcher metric, else the newest. Give both `sort_by`
        and `order_by`, or neither. A string in `sort_by` names a validation metric; checkpoints without it, or with
        NaN, come last. Raises `ValueError` for a metric that no trial has reported.
        """
        rows = list_checkpoints(self._home, self._scope, sort_by, order_by, max_results)
        return [Checkpoint(self._home, row) for row in rows]

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """Finds the best checkpoint by the validation metric `sort_by`, by default the experiment's searcher metric.

        That is the checkpoint with the best value that its own attempt reported at its step. Raises `ValueError` if no
        checkpoint has a value, or if it is not known which metric counts, or whether smaller values of it are better.
        """
        return Checkpoint(self._home, top_checkpoints(self._home, self._scope, sort_by, smaller_is_better)[0])

    def wait(self, interval: float = 5.0) -> TrainingState:
        """Blocks until the end, and returns the final state. Checks every `interval` seconds.

        An experiment that was not submitted has ended when none of its trials is active, even before its first trial.
        Raises `PausedError` if it is paused.
        """
        self.reload()
        while self.state in GOING_ON:
            self._keep_going()
            time.sleep(interval)
            self.reload()
        if self.state is TrainingState.PAUSED:
            raise PausedError(str(self._scope), self._go_on_command)
        return self.state

    def _keep_going(self) -> None:
        """Starts a master if none runs and the experiment needs one."""
        keep_going(self._home, self._scope.experiment_id)


class Trial(Training):
    """A trial as it was when it was looked up. `reload` looks it up again."""

    _go_on_command = "core-sdk trial resume"

    def __init__(self, home: Home, row: TrialRow) -> None:
        self._home = home
        self._take(row)

    def __repr__(self) -> str:
        return f"Trial(trial_id={self.trial_id}, experiment_id={self.experiment_id}, state={self.state.name})"

    def _facts(self) -> Mapping[str, object]:
        return {
            "Trial": self.trial_id,
            "Name": self.name,
            "Labels": ", ".join(self.labels) or None,
            "Experiment": f"{self.experiment_name} ({self.experiment_id})",
            "State": f"{self.state.name}: {self.reason}" if self.reason else self.state.name,
            "Steps": self.steps_completed,
            "Progress": None if self.progress is None else f"{self.progress:.0%}",
            "Hyperparameters": ", ".join(f"{name}={value}" for name, value in self.hparams.items()) or None,
        }

    def _newest(self) -> Trial:
        with open_view(self._home) as view:
            return Trial(self._home, view.trial(self.trial_id))

    def _take(self, row: TrialRow) -> None:
        self.id = self.trial_id = row.trial_id
        self.experiment_id = row.experiment_id
        self._scope = Scope(row.experiment_id, row.trial_id)
        self.experiment_name = row.experiment_name
        self.name = row.name
        self.labels = set(row.labels)
        self.notes = row.notes
        self.hparams = row.hparams
        self.state = TrainingState[row.state]
        self.reason = row.reason
        self.start_time = to_datetime(row.created)
        self.end_time = None if row.ended is None else to_datetime(row.ended)
        self.num_attempts = row.num_attempts
        self.steps_completed = row.steps_completed
        self.progress = row.progress
        self.status = row.status
        self.metadata = row.metadata
        self.latest_checkpoint = row.latest_checkpoint
        self.continued_from = row.continued_from
        self.num_dropped = row.num_dropped
        self.archived = row.is_archived
        self.ranks = row.ranks

    @property
    def summary_metrics(self) -> dict[str, dict[str, dict[str, Metric | None]]]:
        """The present count, last, min, max and mean of each metric in each group. Min, max and mean ignore NaN."""
        with open_view(self._home) as view:
            return view.summary(self.trial_id)

    def get_experiment(self) -> Experiment:
        with open_view(self._home) as view:
            return Experiment(self._home, view.experiment(self.experiment_id))

    def iter_metrics(
        self, group: str | None = None, *, rank: int | Literal["all"] | None = None, superseded: bool = False
    ) -> Iterator[TrialMetrics]:
        """Yields the reports of `group`, or of all groups but the profiler's, by `steps_completed`, rank and time.

        They are those of `rank`, or with "all" those of all ranks. By default each metric is that of rank 0, or of the
        lowest rank that has reported it in the attempt. What later reports have superseded is left out, unless
        `superseded` is True.
        """
        with open_view(self._home) as view:
            for row in view.reports(self.trial_id, group, rank=rank, superseded=superseded):
                yield trial_metrics(row)

    stream_metrics = iter_metrics

    def stream_training_metrics(self) -> Iterator[TrialMetrics]:
        """Yields the reports of the group "training", like `iter_metrics("training")`."""
        return self.iter_metrics("training")

    def stream_validation_metrics(self) -> Iterator[TrialMetrics]:
        """Yields the reports of the group "validation", like `iter_metrics("validation")`."""
        return self.iter_metrics("validation")

    def iter_media(
        self,
        group: str | None = None,
        *,
        kind: str | None = None,
        rank: int | Literal["all"] | None = None,
        superseded: bool = False,
    ) -> Iterator[ReportedMedia]:
        """Yields the images, audios and other media of the reports, by `steps_completed`, rank and time.

        After them come those of event files that the script has written itself, in the group "tensorboard".

        `kind` is "image", "audio", "video", "histogram", "table", "text", "figure" or "confusion_matrix". `rank` and
        `superseded` mean the same as in `iter_metrics`.
        """
        with open_view(self._home) as view:
            found = view.media(self.trial_id, rank=rank, superseded=superseded)
        for row in found:
            if group in (None, row.group) and kind in (None, row.file.kind):
                yield ReportedMedia(self._home, row)

    def metrics_frame(
        self, group: str | None = None, *, rank: int | Literal["all"] | None = None
    ) -> dict[str, list[Any]]:
        """Returns the reports of `iter_metrics` as columns: `pandas.DataFrame(trial.metrics_frame())`.

        The columns are trial_id, attempt, rank, group, steps_completed and time (aware, in UTC), then one per metric.
        There is one row per report; a metric that the report does not have is None. A metric with the name of one of
        the first six columns is called "metrics.<name>".
        """
        with open_view(self._home) as view:
            return frame(view.reports(self.trial_id, group, rank=rank))

    def iter_logs(
        self,
        follow: bool = False,
        *,
        head: int | None = None,
        tail: int | None = None,
        rank_ids: Collection[int] | None = None,
        min_level: LogLevel | None = None,
        search_text: str | None = None,
    ) -> Iterator[str]:
        """Yields the output of all attempts that a command of `core-sdk` started, as lines with their newlines.

        `rank_ids` selects the lines of these ranks. Lines of a single rank are unchanged; lines of several ranks begin
        with `[rank=N] `. The launcher's own lines belong to no rank. Without a launcher, all lines belong to rank 0.

        `min_level` selects the lines of at least this level, if `logging` writes them in `core_sdk.LOG_FORMAT`, where
        the level comes first. Other lines, such as those of `print`, have the level INFO.

        `search_text` selects the lines that contain it, in upper or lower case. Of the selected lines, only the first
        `head` or the last `tail` are yielded. With `follow`, later lines follow until the trial has ended.
        """
        wanted = line_filter(search_text, min_level)
        return log_lines(
            self._home, self.trial_id, follow=follow, head=head, tail=tail, wanted=wanted, rank_ids=rank_ids
        )

    logs = iter_logs

    get_checkpoints = Training.list_checkpoints

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """Finds the latest checkpoint, the best one (see `top_checkpoint`), or the one with this `uuid`.

        Give exactly one of the three. Raises `ValueError` or `CheckpointNotFoundError`.
        """
        if [latest, best, uuid is not None].count(True) != 1:
            raise ValueError("give exactly one of latest, best and uuid")
        if uuid is not None:
            with open_view(self._home) as view:
                return Checkpoint(self._home, view.checkpoint(uuid))
        if best:
            return self.top_checkpoint(sort_by, smaller_is_better)
        newest = self.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC, 1)
        if not newest:
            raise ValueError(f"trial {self.trial_id} has no checkpoint")
        return newest[0]

    def pause(self) -> None:
        """Asks the script to stop, and does not wait for it. `should_preempt()` returns True there within a second.

        Raises `TrialNotRunningError`. Raises `ExperimentStateError` for a trial of a submitted experiment that has not
        ended; `Experiment.pause` pauses all its trials.
        """
        trials.pause(self._home, self.trial_id, _BY)

    def kill(self) -> None:
        """Kills the script with all its processes, and returns when they are gone. The trial is then canceled.

        A trial that does not run is also canceled if it belongs to a submitted experiment that has not ended. For any
        other, raises `TrialNotRunningError`. Raises `AgentNotFoundError` for a script that `core-sdk` has not started
        here.
        """
        trials.kill(self._home, self.trial_id, _BY)

    def resume(self) -> None:
        """Continues the trial in the background from its newest good checkpoint, like `core-sdk trial resume`.

        `wait` waits for its end. Raises `TrialRunningError`, `TrialCompletedError`, `NothingToResumeError` or
        `CommandError`, or `ExperimentStateError` for a trial of a submitted experiment that has not ended.
        """
        trials.resume(self._home, self.trial_id)

    def archive(self) -> None:
        """Hides the trial from lists, until it is resumed. Raises `TrialRunningError`."""
        trials.archive(self._home, self.trial_id)
        self.reload()

    def unarchive(self) -> None:
        trials.unarchive(self._home, self.trial_id)
        self.reload()

    def set_name(self, name: str) -> None:
        """Renames the trial. Several trials may have the same name; an empty one is the generated one."""
        trials.describe(self._home, self.trial_id, name=checked_text("name", name))
        self.reload()

    def set_notes(self, notes: str) -> None:
        """Replaces the notes, which are Markdown."""
        trials.describe(self._home, self.trial_id, notes=checked_text("notes", notes))
        self.reload()

    def add_label(self, label: str) -> None:
        trials.label(self._home, self.trial_id, add=[label])
        self.reload()

    def remove_label(self, label: str) -> None:
        """Removes a label. Does nothing if the trial does not have it."""
        trials.label(self._home, self.trial_id, remove=[label])
        self.reload()

    def delete(self, *, force: bool = False) -> None:
        """Deletes the trial with its records and checkpoints.

        Raises `TrialRunningError`. Raises `CheckpointProtectedError` if a checkpoint is pinned, if another trial began
        with it, if a running trial uses it, or if it is a version of a model; `force` ignores the first two.
        """
        trials.delete(self._home, self.trial_id, is_forced=force)

    def plot(self, metrics: Collection[str] = (), *, group: str | None = None, x: str = "steps") -> Picture:
        """Draws a chart for each metric, which a notebook shows.

        All metrics of all groups are drawn, unless some are named; "/loss$/" names those in which this regular
        expression has a match. `x` is "steps", "time" (since the start of the
        trial), "epochs" or a metric. Raises `NotRecordedError` or `NothingToDrawError`.
        """
        from core_sdk.charts.picture import Picture
        from core_sdk.charts.trials import trial_charts

        with open_view(self._home) as view:
            return Picture(trial_charts(view, [self.trial_id], group=group, metrics=metrics, x=x))

    def reload(self) -> None:
        with open_view(self._home) as view:
            self._take(view.trial(self.trial_id))


class Experiment(Training):
    """An experiment as it was when it was looked up. `reload` looks it up again."""

    _go_on_command = "core-sdk experiment activate"

    def __init__(self, home: Home, row: ExperimentRow) -> None:
        self._home = home
        self._take(row)

    def __repr__(self) -> str:
        return f"Experiment(id={self.id}, name={self.name!r}, state={self.state.name})"

    def _facts(self) -> Mapping[str, object]:
        progress = self.progress
        return {
            "Experiment": f"{self.name} ({self.id})",
            "State": self.state.name,
            "Trials": self.num_trials,
            "Progress": None if progress is None else f"{progress:.0%}",
            "Labels": ", ".join(sorted(self.labels)) or None,
            "Description": self.description or None,
        }

    def _newest(self) -> Experiment:
        with open_view(self._home) as view:
            return Experiment(self._home, view.experiment(self.id))

    def _take(self, row: ExperimentRow) -> None:
        self.id = row.experiment_id
        self._scope = Scope(row.experiment_id)
        self.name = row.name
        self.start_time = to_datetime(row.created)
        self.labels: Set[str] = frozenset(row.labels)
        self.description = row.description
        self.num_trials = row.num_trials
        self.state = TrainingState[row.state]
        self.archived = row.is_archived
        self.forked_from = row.parent
        self._search = row.search

    @property
    def progress(self) -> float | None:
        """The progress from 0 to 1: that of the search, else the mean of the trials' progress; None if unknown."""
        if self._search is not None:
            return self._search.progress
        told = [trial.progress for trial in self.list_trials() if trial.progress is not None]
        return sum(told) / len(told) if told else None

    @property
    def notes(self) -> str:
        return self._home.experiment(self.id).read().notes

    @property
    def config(self) -> dict[str, Any]:
        """The complete configuration of an experiment that was submitted, including keys and secrets.

        For an experiment that was not submitted, its records in the same form. "hyperparameters" and "data" are those
        of its first trial, each hyperparameter as a constant. "searcher" has the "metric", if one is known.
        "checkpoint_storage" says how many checkpoints are kept.
        """
        return experiment_config(self._home, self.id)

    def list_trials(self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC) -> list[Trial]:
        """Lists the trials. Trials without a value to sort by come last, such as running trials if sorted by end."""
        return list(self.iter_trials(sort_by, order_by))

    def iter_trials(
        self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC, limit: int | None = None
    ) -> Iterator[Trial]:
        """Yields the first `limit` trials of `list_trials`."""
        rows = list_trials(self._home, self.id, sort_by, order_by, limit)
        return (Trial(self._home, row) for row in rows)

    get_trials = list_trials

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        """Blocks until there is a trial, and returns the one with the lowest id. Checks every `interval` seconds.

        Raises `ExperimentStateError` if the experiment has ended without one.
        """
        while not (trials := self.list_trials()):
            self.reload()
            if self._search is not None and self._search.has_ended:
                raise ExperimentStateError(self.id, f"has ended without a trial: it is {self._search.state}")
            self._keep_going()
            time.sleep(interval)
        return trials[0]

    def trials_frame(self) -> dict[str, list[Any]]:
        """Returns the trials as columns, with one row per trial: `pandas.DataFrame(experiment.trials_frame())`.

        The columns are trial_id, experiment_id, state, num_attempts, steps_completed, start_time and end_time; then one
        per hyperparameter ("hparams.lr", "hparams.model.layers"); then the best value of the searcher's metric
        ("best.validation.loss"); then the last value of each metric ("last.training.loss"). A value that a trial does
        not have is None.
        """
        return trials_frame(self._home, [self.id])

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        """Finds the best checkpoint of each of the `limit` best trials, the best first; see `top_checkpoint`."""
        found = top_checkpoints(self._home, self._scope, sort_by, smaller_is_better)
        best: dict[int, CheckpointRow] = {}
        for row in found:
            best.setdefault(row.trial_id, row)
        return [Checkpoint(self._home, row) for row in list(best.values())[:limit]]

    def plot(self) -> Picture:
        """Draws charts of the experiment, which a notebook shows.

        If it was submitted, they show the searcher's metric of all trials, else all metrics of its newest trials.
        """
        from core_sdk.charts.experiments import experiment_charts
        from core_sdk.charts.picture import Picture

        return Picture(experiment_charts(self._home, self.id))

    def pause(self) -> None:
        """Asks each running trial to stop, like `Trial.pause`. No trial is started until `activate`.

        If the experiment was not submitted, raises `ExperimentNotRunningError` if none of its trials runs.
        """
        experiments.pause(self._home, self.id, _BY)
        self.reload()

    def activate(self) -> None:
        """Continues the experiment after `pause`. Does nothing if it has been completed.

        Raises `MasterError` if it was canceled or has failed.
        """
        experiments.activate(self._home, self.id, _BY)
        self.reload()

    def cancel(self) -> None:
        """Ends the experiment. Its trials save their checkpoints and stop. Raises `MasterError` if it has ended."""
        experiments.cancel(self._home, self.id, _BY)
        self.reload()

    def kill(self) -> None:
        """Ends the experiment at once by killing its trials. Raises `MasterError` if it has ended.

        If the experiment was not submitted, raises `ExperimentNotRunningError` if none of its trials runs.
        """
        experiments.kill(self._home, self.id, _BY)
        self.reload()

    def archive(self) -> None:
        """Marks the experiment as archived. Raises `ExperimentStateError` if it has not ended."""
        experiments.archive(self._home, self.id)
        self.reload()

    def unarchive(self) -> None:
        experiments.unarchive(self._home, self.id)
        self.reload()

    def download_code(self, output_dir: str | os.PathLike[str] | None = None) -> str:
        """Copies the archive of the experiment's code to `exp-<id>_model_def.tar.gz`, and returns that path.

        Raises `ExperimentStateError` if the experiment has no code of its own.
        """
        experiments.check_submitted(self._home, self.id, "its code stays where it was run from")
        code = self._home.experiment(self.id).read_submission().code
        if code is None:
            raise ExperimentStateError(self.id, "has no code of its own: its trials run where it was submitted")
        directory = Path(output_dir or ".").expanduser()
        directory.mkdir(parents=True, exist_ok=True)
        copy = directory / f"exp-{self.id}_model_def.tar.gz"
        shutil.copyfile(self._home.code_archive(code), copy)
        return str(copy)

    def set_name(self, name: str) -> None:
        """Renames the experiment. A script that later begins a trial under the old name makes a new experiment.

        Raises `NameTakenError`.
        """
        experiments.describe(self._home, self.id, name=checked_text("name", name))
        self.reload()

    def set_labels(self, labels: Iterable[str]) -> None:
        experiments.set_labels(self._home, self.id, labels)
        self.reload()

    def add_label(self, label: str) -> None:
        experiments.label(self._home, self.id, add=[label])
        self.reload()

    def remove_label(self, label: str) -> None:
        """Removes a label. Does nothing if the experiment does not have it."""
        experiments.label(self._home, self.id, remove=[label])
        self.reload()

    def set_description(self, description: str) -> None:
        experiments.describe(self._home, self.id, description=checked_text("description", description))
        self.reload()

    def set_notes(self, notes: str) -> None:
        experiments.describe(self._home, self.id, notes=checked_text("notes", notes))
        self.reload()

    move_to_project = unavailable(
        "Experiment.move_to_project()", "There are no projects: labels tell experiments apart"
    )
    delete_tensorboard_files = unavailable(
        "Experiment.delete_tensorboard_files()", "delete() removes them with all other records"
    )
    get_pachyderm_config = unavailable("Experiment.get_pachyderm_config()", "Pachyderm's settings are not recorded")

    def delete(self, *, force: bool = False) -> None:
        """Deletes the experiment with its trials, records and checkpoints.

        Raises `ExperimentStateError` for one that has not ended, and the errors of `Trial.delete`.
        """
        experiments.delete(self._home, self.id, is_forced=force)

    def reload(self) -> None:
        with open_view(self._home) as view:
            self._take(view.experiment(self.id))
