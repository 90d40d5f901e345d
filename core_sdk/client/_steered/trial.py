"""Trials: what they have reported and written, and their verbs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core_sdk._execution.steering import trials
from core_sdk._execution.steering.checks import checked_text
from core_sdk._ground.masking import MASK, masked_values
from core_sdk._ground.records import Metric, from_json
from core_sdk._home import Home, open_view
from core_sdk._home.finding.time_ledger import TimeLedger, read_ledger
from core_sdk._home.rows import Ranks, TrialRow
from core_sdk.client._logs import LogLevel, line_filter, log_lines
from core_sdk.client._media import ReportedMedia
from core_sdk.client._metrics import TrialMetrics, frame, to_datetime, trial_metrics
from core_sdk.client._notebook import Shown
from core_sdk.client._orders.checkpoints import Scope
from core_sdk.client._orders.order import TrainingState

if TYPE_CHECKING:
    from core_sdk._analysis.charts.picture import Picture
    from core_sdk.core import Context

_BY = "client"


class SteeredTrial(Shown[TrialRow]):
    """A trial as it was when it was looked up: what it has reported and written, and its verbs."""

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
            "Hyperparameters": ", ".join(f"{one}={value}" for one, value in masked_values(self.hparams).items())
            or None,
        }

    def _read(self) -> TrialRow:
        with open_view(self._home, trial_id=self.trial_id) as view:
            return view.trial(self.trial_id)

    def _take(self, row: TrialRow) -> None:
        self.id = self._id = self.trial_id = row.trial_id
        self.experiment_id = row.experiment_id
        self._scope = Scope(row.experiment_id, row.trial_id)
        self.experiment_name = row.experiment_name
        self.name = row.name
        self.labels = set(row.labels)
        self.notes = row.notes
        self.parent = row.parent
        self.hypothesis = row.hypothesis
        self.best_by = row.best_by
        self.verdict = row.verdict
        self.verdict_reason = row.verdict_reason
        self.hparams = hparams_of(self._home, row)
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
        self.writers = row.writers

    def writer(self, name: str) -> Context:
        """Returns the Context of a writer, which reports about the trial next to its own program. Enter it with `with`.

        `core.init(trial=…, writer=name)` returns the same, and says what it may do.
        """
        from core_sdk._distributed import DistributedContext
        from core_sdk.core._writer import open_writer

        return open_writer(*self._home.own("trial", self.trial_id), name, DistributedContext())

    @property
    def summary_metrics(self) -> dict[str, dict[str, dict[str, Metric | None]]]:
        """The present count, last, min, max and mean of each metric in each group. Min, max and mean ignore NaN."""
        with open_view(self._home, trial_id=self.trial_id) as view:
            return view.summary(self.trial_id)

    def time_ledger(self) -> TimeLedger:
        """Returns where the time of the trial went, up to now, and how often to save: `docs/time.md` has the phases."""
        with open_view(self._home) as view:
            return read_ledger(view, trial_id=self.trial_id)

    def iter_metrics(
        self, group: str | None = None, *, rank: Ranks = None, superseded: bool = False
    ) -> Iterator[TrialMetrics]:
        """Yields the reports of `group`, or of all groups but the profiler's, by `steps_completed`, rank and time.

        They come from `rank`, a number or the name of a writer, or with "all" from all of them. By default each metric
        comes from rank 0, or the lowest rank that has reported it in the attempt, or the first writer. What later
        reports have superseded is left out, unless `superseded` is True.
        """
        with open_view(self._home, trial_id=self.trial_id) as view:
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
        rank: Ranks = None,
        superseded: bool = False,
    ) -> Iterator[ReportedMedia]:
        """Yields the images, audios and other media of the reports, by `steps_completed`, rank and time.

        After them come the media of event files that the script has written itself, in the group "tensorboard".

        `kind` is "image", "audio", "video", "histogram", "table", "text", "figure" or "confusion_matrix". `rank` and
        `superseded` mean the same as in `iter_metrics`.
        """
        with open_view(self._home, trial_id=self.trial_id) as view:
            found = view.media(self.trial_id, rank=rank, superseded=superseded)
        for row in found:
            if group in (None, row.group) and kind in (None, row.file.kind):
                yield ReportedMedia(self._home, row)

    def metrics_frame(self, group: str | None = None, *, rank: Ranks = None) -> dict[str, list[Any]]:
        """Returns the reports of `iter_metrics` as columns: `pandas.DataFrame(trial.metrics_frame())`.

        The columns are trial_id, attempt, rank, group, steps_completed and time (aware, in UTC), then one per metric.
        There is one row per report; a metric that the report does not have is None. A metric with the name of one of
        the first six columns is called "metrics.<name>".
        """
        with open_view(self._home, trial_id=self.trial_id) as view:
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
        the level comes first. Other lines, such as the output of `print`, have the level INFO.

        `search_text` selects the lines that contain it, in upper or lower case. Of the selected lines, only the first
        `head` or the last `tail` are yielded. With `follow`, later lines follow until the trial has ended.
        """
        wanted = line_filter(search_text, min_level)
        return log_lines(
            self._home, self.trial_id, follow=follow, head=head, tail=tail, wanted=wanted, rank_ids=rank_ids
        )

    logs = iter_logs

    def pause(self) -> None:
        """Asks the script to stop, and does not wait for it. `should_preempt()` returns True there within a second.

        The job of a trial that waits in Slurm's queue is taken out of it.

        Raises `TrialNotRunningError`. Raises `ExperimentError` for a trial of a submitted experiment that has not
        ended; `Experiment.pause` pauses all its trials.
        """
        trials.pause(self._home, self.trial_id, _BY)

    def kill(self) -> None:
        """Kills the script with all its processes, and returns when they are gone. The trial is then canceled.

        A trial that does not run is also canceled if it belongs to a submitted experiment that has not ended. For any
        other, raises `TrialNotRunningError`. Raises `AttemptError` for a script that `core-sdk` has not started
        here.
        """
        trials.kill(self._home, self.trial_id, _BY)

    def resume(self) -> None:
        """Continues the trial in the background from its newest good checkpoint, like `core-sdk trial resume`.

        `wait` waits for its end. Raises `TrialRunningError`, `TrialCompletedError`, `NothingToResumeError` or
        `CommandError`, or `ExperimentError` for a trial of a submitted experiment that has not ended.
        """
        trials.resume(self._home, self.trial_id)

    def archive(self) -> None:
        """Hides the trial from lists, until it is resumed. Raises `TrialRunningError`."""
        self._do(trials.archive)

    def unarchive(self) -> None:
        self._do(trials.unarchive)

    def set_name(self, name: str) -> None:
        """Renames the trial. Several trials may have the same name; an empty one is the generated one."""
        self._do(trials.describe, name=checked_text("name", name))

    def set_notes(self, notes: str) -> None:
        """Replaces the notes, which are Markdown."""
        self._do(trials.describe, notes=checked_text("notes", notes))

    def set_verdict(self, verdict: str, reason: str = "") -> None:
        """Records what was decided about the trial: `keep` or `discard`, or an empty text to take it back."""
        self._do(trials.describe, verdict=verdict, verdict_reason=reason)

    def add_label(self, label: str) -> None:
        self._do(trials.label, add=[label])

    def remove_label(self, label: str) -> None:
        """Removes a label. Does nothing if the trial does not have it."""
        self._do(trials.label, remove=[label])

    def delete(self, *, force: bool = False) -> None:
        """Deletes the trial with its records and checkpoints.

        Raises `TrialRunningError`. Raises `CheckpointProtectedError` if a checkpoint is pinned, if another trial began
        with it, if a running trial uses it, or if it is a version of a model; `force` ignores the first two.
        """
        trials.delete(self._home, self.trial_id, force=force)

    def plot(
        self,
        metrics: Collection[str] = (),
        *,
        formulas: Sequence[str] = (),
        group: str | None = None,
        x: str = "steps",
    ) -> Picture:
        """Draws a chart for each metric, which a notebook shows.

        All metrics of all groups are drawn, unless some are named; "/loss$/" names those in which this regular
        expression has a match. `formulas`, such as "validation.loss - training.loss", have a chart each, and without
        names of metrics they are all that is drawn. `x` is "steps", "time" (since the start of the trial), "epochs" or
        a metric. Raises `NotRecordedError`, `NothingToDrawError`, or `ValueError` for a formula that is wrong.
        """
        from core_sdk._analysis.charts.picture import Picture
        from core_sdk._analysis.charts.trials import trial_charts

        with open_view(self._home) as view:
            return Picture(trial_charts(view, [self.trial_id], group=group, metrics=metrics, formulas=formulas, x=x))


def hparams_of(home: Home, row: TrialRow) -> dict[str, Any]:
    """Returns a trial's hyperparameters as they were given: a row has no secrets, which is for those who show it."""
    if MASK not in str(row.hparams):
        return row.hparams
    hparams: dict[str, Any] = from_json(home.trial(row.trial_id).read_record().hparams)
    return hparams
