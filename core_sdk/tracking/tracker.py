"""The seam between those who ask about trainings and the place where records live.

Everything here could go over a wire as it is: rows are frozen values, long answers come in pages, and growing files are
read from an offset. `HomeTracker` keeps the records in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from core_sdk.records import CommandRecord, ExperimentRecord, Metric, Record, StopRequest, TrialRecord
from core_sdk.tracking.rows import (
    AttemptRow,
    Bucket,
    CheckpointRow,
    ExperimentChange,
    ExperimentRow,
    FiguresByTrial,
    ProfileSeriesRow,
    Ranks,
    Reading,
    ReportPage,
    ReportRow,
    ReportStretch,
    SeriesRow,
    StreamPosition,
    Summary,
    TrialRow,
)

if TYPE_CHECKING:
    from core_sdk.tracking.deletion.collection import Deletions, Plan, Request


class View(Protocol):
    """What a tracker holds, as of one moment; only whether a process lives is looked up at each question."""

    def experiments(self, experiment_ids: Collection[int] | None = None) -> list[ExperimentRow]:
        """The experiments that have trials or were begun by a master; others are still found by `experiment`."""

    def experiment_marks(self) -> dict[int, str]:
        """For each of `experiments`, a value that differs from an earlier one if its record has changed since."""

    def experiment(self, id_or_name: int | str) -> ExperimentRow:
        """Raises `ExperimentNotFoundError`, `AmbiguousNameError` or `RecordDamagedError`."""

    def refresh(self, *, only_open: bool = False) -> object:
        """Looks again, for one who keeps the view for long; with `only_open` not at trials that have ended."""

    def left_out(self) -> list[str]:
        """The names of the records of trials and experiments that cannot be read."""

    def marks(self) -> dict[int, str]:
        """For each trial, a value that differs from an earlier one if anything was recorded of it since."""

    def trials(
        self, experiment_id: int | None = None, *, trial_ids: Collection[int] | None = None
    ) -> list[TrialRow]: ...

    def trial(self, trial_id: int) -> TrialRow:
        """Raises `TrialNotFoundError`, or `RecordDamagedError` for one that cannot be read."""

    def report_page(
        self,
        trial_id: int,
        group: str | None = None,
        *,
        rank: Ranks = None,
        superseded: bool = False,
        after: int | None = None,
    ) -> ReportPage:
        """The reports of some steps beyond `after`, as `reports` orders them."""

    def reports(
        self, trial_id: int, group: str | None = None, *, rank: Ranks = None, superseded: bool = False
    ) -> Iterator[ReportRow]:
        """All reports by steps, then by rank and time, page after page. `superseded=True` adds those, flagged.

        The profiler's groups must be asked for by name; they come by time, without a `rank` those of all nodes.
        """
        page = self.report_page(trial_id, group, rank=rank, superseded=superseded)
        yield from page.reports
        while page.next_after is not None:
            page = self.report_page(trial_id, group, rank=rank, superseded=superseded, after=page.next_after)
            yield from page.reports

    def groups(self, trial_id: int) -> list[str]:
        """The groups of which anything was reported, the profiler's too."""

    def reporting_ranks(self, trial_id: int) -> list[int]:
        """The ranks that have reported metrics in any attempt, in order."""

    def series(self, trial_id: int, *, rank: int | None = None) -> list[SeriesRow]:
        """The metrics that a rank has reported; of `None`, and everywhere here, as `Ranks` says."""

    def profile_series(self, trial_id: int) -> list[ProfileSeriesRow]:
        """The profiler's figures that were recorded of the trial's nodes."""

    def buckets(
        self,
        trial_id: int,
        group: str,
        name: str,
        num_buckets: int = 2000,
        *,
        within: tuple[int, int] | None = None,
        superseded_of: int | None = None,
        rank: int | None = None,
        is_profile: bool = False,
    ) -> list[Bucket]:
        """At most `num_buckets`, equally wide in steps, in order; those without points are left out.

        Only steps `within` the first and the last; of an attempt only what later ones have superseded, with
        `superseded_of`; the profiler's figures of a rank, by milliseconds since the Unix epoch, with `is_profile`.
        """

    def bucket_times(
        self,
        trial_id: int,
        group: str,
        name: str,
        buckets: Sequence[Bucket],
        *,
        superseded_of: int | None = None,
        rank: int | None = None,
    ) -> list[float]:
        """When the newest point of each of these buckets was reported."""

    def resume_points(self, trial_id: int) -> list[int]:
        """The steps from which later attempts went on."""

    def summary(self, trial_id: int) -> Summary: ...

    def figures(self, trial_ids: Collection[int] | None = None, *, rank: int | None = None) -> FiguresByTrial:
        """What the metrics of all trials, or of some, have come to; it is found without reading all points."""

    def checkpoints(self, *, trial_id: int | None = None, experiment_id: int | None = None) -> list[CheckpointRow]:
        """Those of the newest trial first, and of each trial the newest first; deleted ones too."""

    def checkpoint(self, storage_id: str) -> CheckpointRow:
        """Raises `CheckpointNotFoundError`."""

    def best_validations(self, experiment_id: int, metric: str, *, smaller_is_better: bool) -> dict[int, Metric]:
        """The best value of a validation metric, by trial; NaN is never the best. A trial without one is left out."""

    def validation_metric_names(self, experiment_id: int) -> set[str]: ...


class Tracker(Protocol):
    """Where records live. Each call says what is true when it is made."""

    @property
    def location(self) -> str:
        """The place of the records, for messages."""

    def view(self, on_progress: Callable[[Reading], None] | None = None) -> AbstractContextManager[View]:
        """A view for questions that belong together. Leave it soon: it may hold a file or a connection open.

        Two threads may not ask at the same time. `on_progress` is told how far the records are read, here and in
        `refresh`; what it raises ends the reading.
        """

    def experiment_record(self, experiment_id: int) -> ExperimentRecord:
        """Raises `ExperimentNotFoundError` or `RecordDamagedError`."""

    def trial_record(self, trial_id: int) -> TrialRecord:
        """Raises `TrialNotFoundError` or `RecordDamagedError`."""

    def command(self, trial_id: int) -> CommandRecord | None:
        """How to start the trial's script again, if that is known. Raises `RecordDamagedError`."""

    def attempts(self, trial_id: int) -> list[AttemptRow]:
        """In order. Raises `TrialNotFoundError`."""

    def read_log(self, trial_id: int, attempt: int, offset: int, max_bytes: int) -> bytes:
        """The output of an attempt from byte `offset` on; empty at its end, and where none was kept."""

    def read_reports(self, trial_id: int, start: StreamPosition, rank: int = 0) -> ReportStretch:
        """What a rank has reported since `start`, in the order of the calls; an empty stretch where nothing is new."""

    def stop_request(self, trial_id: int, attempt: int) -> StopRequest | None:
        """Whether somebody has asked the attempt to stop. Raises `RecordDamagedError` for a request without words."""

    def request_stop(self, trial_id: int, source: str) -> int:
        """Asks the attempt that runs to stop, and returns its number.

        Raises `TrialNotRunningError`, or `ExperimentStateError` if a submitted experiment decides when it runs.
        """

    def kill(self, trial_id: int, source: str) -> None:
        """Kills the attempt that runs, and returns when nothing of it is left; the trial is canceled.

        Raises `TrialNotRunningError`, or `AgentNotFoundError` if no agent on this machine has started it.
        """

    def append_change(self, trial_id: int, change: Record) -> None:
        """Records, durably, something that was done to the trial from outside."""

    def archive_trial(self, trial_id: int, *, is_archived: bool = True) -> None:
        """Hides the trial from lists until a later attempt begins, or shows it again. Raises `TrialRunningError`."""

    def change_experiment(self, experiment_id: int, change: ExperimentChange) -> None:
        """Raises `ExperimentNotFoundError` or `NameTakenError`, or `ExperimentStateError` if it may not be archived."""

    def delete_trial(self, trial_id: int, *, is_forced: bool = False) -> None:
        """Deletes the trial with its records and checkpoints. Raises as `tracking.deletion.delete_trial`."""

    def delete_experiment(self, experiment_id: int, *, is_forced: bool = False) -> None:
        """Deletes the experiment with its trials. Raises as `delete_trial`, and has then deleted nothing."""

    def delete_checkpoint(self, storage_id: str, *, is_forced: bool = False) -> None:
        """Deletes the checkpoint's files. Raises as `tracking.deletion.delete_checkpoint`."""

    def delete_files(self, storage_id: str, globs: Sequence[str], *, is_forced: bool = False) -> None:
        """Deletes what `globs` match of a checkpoint. Raises as `tracking.deletion.delete_files`."""

    def plan_collection(self, request: Request) -> Plan:
        """What a policy would delete. Raises as `tracking.deletion.collection.Collector.plan`."""

    def carry_out_collection(self, request: Request, plan: Plan, *, wait_s: float = -1) -> Deletions:
        """Deletes what `plan` condemned and is still to be condemned. Raises `CollectionRunningError`."""
