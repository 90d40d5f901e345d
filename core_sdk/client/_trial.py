"""A trial, seen from outside its script."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from core_sdk.client._checkpoint import Checkpoint, list_checkpoints, top_checkpoints
from core_sdk.client._logs import LogLevel, line_filter, log_lines
from core_sdk.client._metrics import TrialMetrics, frame, to_datetime, trial_metrics
from core_sdk.client._order import CheckpointSortBy, OrderBy, TrialState
from core_sdk.client._without_master import needs_master
from core_sdk.errors import PausedError, TrialNotRunningError
from core_sdk.records import Metric
from core_sdk.tracking.deletion import delete_trial
from core_sdk.tracking.rows import TrialRow

if TYPE_CHECKING:
    from core_sdk.client._experiment import Experiment
    from core_sdk.client._tracker import Tracker


class Trial:
    """A trial as it was when it was looked up; `reload` looks again."""

    def __init__(self, tracker: Tracker, row: TrialRow) -> None:
        self._tracker = tracker
        self._take(row)

    def __repr__(self) -> str:
        return f"Trial(trial_id={self.trial_id}, experiment_id={self.experiment_id}, state={self.state.name})"

    def _take(self, row: TrialRow) -> None:
        self.id = self.trial_id = row.trial_id
        self.experiment_id = row.experiment_id
        self.experiment_name = row.experiment_name
        self.hparams = row.hparams
        self.state = TrialState[row.state]
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
        self.ranks = row.ranks

    @property
    def summary_metrics(self) -> dict[str, dict[str, dict[str, Metric | None]]]:
        """Group -> metric -> count, last, min, max and mean as of now; of NaN only `count` and `last` know."""
        with self._tracker.index() as index:
            return index.summary(self.trial_id)

    def get_experiment(self) -> Experiment:
        return self._tracker.get_experiment(self.experiment_id)

    def iter_metrics(self, group: str | None = None, *, superseded: bool = False) -> Iterator[TrialMetrics]:
        """The reports of `group`, or of all groups but the profiler's, by `steps_completed` and then by time.

        Reports that a later attempt has superseded are left out, unless `superseded` asks for them.
        """
        with self._tracker.index() as index:
            for row in index.reports(self.trial_id, group, superseded=superseded):
                yield trial_metrics(row)

    stream_metrics = iter_metrics

    def stream_training_metrics(self) -> Iterator[TrialMetrics]:
        """As `iter_metrics("training")`."""
        return self.iter_metrics("training")

    def stream_validation_metrics(self) -> Iterator[TrialMetrics]:
        """As `iter_metrics("validation")`."""
        return self.iter_metrics("validation")

    def metrics_frame(self, group: str | None = None) -> dict[str, list[Any]]:
        """What `iter_metrics(group)` gives, as columns: `pandas.DataFrame(trial.metrics_frame())`.

        The columns are trial_id, attempt, rank, group, steps_completed, time (aware, in UTC), then one per metric, None
        where a report does not have it. They are of one length, one row per report. A metric named like one of the
        first six is put under "metrics.<name>".
        """
        return frame(self.iter_metrics(group))

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
        """The output of all attempts that `core-sdk run` or `core-sdk trial resume` started: lines with their newline.

        `rank_ids` keeps the lines of these ranks, where a launcher started several: those of a single rank as it wrote
        them, those of more with the `[rank=N] ` before each. The launcher's own lines belong to no rank; all lines of a
        script that was started without one belong to rank 0.

        `min_level` keeps the lines of at least this level, where `logging` writes them in `core_sdk.LOG_FORMAT`: the
        level comes first. Other lines, such as those of `print`, are at INFO.

        `search_text` keeps the lines that contain it, in any case of letters; the first `head` or the last `tail` of
        them are given. With `follow`, what comes later too, until the trial runs no longer.
        """
        folder = self._tracker.home.trial(self.trial_id)
        wanted = line_filter(search_text, min_level)
        return log_lines(folder, follow=follow, head=head, tail=tail, wanted=wanted, rank_ids=rank_ids)

    logs = iter_logs

    def list_checkpoints(
        self,
        sort_by: CheckpointSortBy | str | None = None,
        order_by: OrderBy | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """The checkpoints that exist: the best first where the experiment has a searcher metric, else the newest first.

        `sort_by` and `order_by` are given both or neither. A `sort_by` that is a string names a validation metric:
        checkpoints without it, or with NaN, come last. Raises `ValueError` for one that nobody reported.
        """
        return list_checkpoints(
            self._tracker, sort_by, order_by, max_results, trial_id=self.trial_id, experiment_id=self.experiment_id
        )

    get_checkpoints = list_checkpoints

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """The best checkpoint by the validation metric `sort_by`; by default, by the experiment's searcher metric.

        Raises `ValueError` if there is no checkpoint, or if nothing says which metric counts or how to read it.
        """
        return top_checkpoints(
            self._tracker, sort_by, smaller_is_better, trial_id=self.trial_id, experiment_id=self.experiment_id
        )[0]

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """The latest checkpoint, the best as `top_checkpoint` finds it, or that of a `uuid`: exactly one is asked for.

        Raises `ValueError`, `CheckpointNotFoundError`.
        """
        if [latest, best, uuid is not None].count(True) != 1:
            raise ValueError("give exactly one of latest, best and uuid")
        if uuid is not None:
            return self._tracker.get_checkpoint(uuid)
        if best:
            return self.top_checkpoint(sort_by, smaller_is_better)
        newest = self.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC, 1)
        if not newest:
            raise ValueError(f"trial {self.trial_id} has no checkpoint")
        return newest[0]

    def pause(self) -> None:
        """Asks the script to stop: its `should_preempt()` becomes true within a second. Does not wait for it.

        Raises `TrialNotRunningError`.
        """
        folder = self._tracker.home.trial(self.trial_id)
        attempt = folder.running_attempt()
        if attempt is None:
            raise TrialNotRunningError(self.trial_id, "pause")
        folder.request_stop(attempt, "client")

    kill = needs_master("Trial.kill()", "pause() asks it to stop; `kill` ends a process that does not")

    def wait(self, interval: float = 5.0) -> TrialState:
        """Returns when the trial has ended; looks every `interval` seconds.

        Raises `PausedError` if it is paused meanwhile, or was before.
        """
        self.reload()
        while self.state is TrialState.ACTIVE:
            time.sleep(interval)
            self.reload()
        if self.state is TrialState.PAUSED:
            raise PausedError(f"trial {self.trial_id}")
        return self.state

    def delete(self, *, force: bool = False) -> None:
        """Deletes the trial with its records and checkpoints.

        Raises `TrialRunningError`, and `CheckpointProtectedError` if a checkpoint is pinned, or if another trial began
        with it or uses it while it runs; `force` passes over the first two.
        """
        delete_trial(self._tracker.home.trial(self.trial_id), is_forced=force)

    def reload(self) -> None:
        with self._tracker.index() as index:
            self._take(index.trial(self.trial_id))
