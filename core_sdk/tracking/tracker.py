"""The seam between readers of records and the place where the records are kept.

All of it could go over a network: rows are frozen values, long answers come in pages, and growing files are read from
an offset. `HomeTracker` keeps the records in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from core_sdk.records import CommandRecord, ExperimentRecord, Metric, StopRequest, TrialRecord
from core_sdk.tracking.rows import (
    AlertRow,
    AttemptRow,
    Bins,
    CheckpointRow,
    ExperimentRow,
    FiguresByTrial,
    MediaRow,
    ProfileSeriesRow,
    Ranks,
    Reading,
    ReportPage,
    ReportRow,
    ReportStretch,
    SeriesBucket,
    SeriesRow,
    StreamPosition,
    Summary,
    TrialRow,
)

if TYPE_CHECKING:
    from core_sdk.tracking.deletion.collection import CollectionPlan, Deletions, Request


class View(Protocol):
    """A snapshot of the records of a tracker. Only whether a process lives is looked up in each call."""

    def experiments(self, experiment_ids: Collection[int] | None = None) -> list[ExperimentRow]:
        """Returns the experiments that have trials or were begun by a master. `experiment` finds others, too."""

    def experiment_marks(self) -> dict[int, str]:
        """Returns a mark for each of `experiments`. It changes whenever the experiment's record changes."""

    def experiment(self, id_or_name: int | str) -> ExperimentRow:
        """Returns an experiment. Raises `ExperimentNotFoundError`, `AmbiguousNameError` or `RecordDamagedError`."""

    def refresh(self, *, only_open: bool = False) -> object:
        """Updates a view that is kept for long. With `only_open`, known trials that have ended are not checked."""

    def left_out(self) -> list[str]:
        """Returns the names of the records of trials and experiments that cannot be read."""

    def marks(self) -> dict[int, str]:
        """Returns a mark for each trial. It changes whenever anything is recorded about the trial."""

    def trials(
        self, experiment_id: int | None = None, *, trial_ids: Collection[int] | None = None
    ) -> list[TrialRow]: ...

    def trial(self, id_or_name: int | str) -> TrialRow:
        """Returns a trial, by its id or by a name that only one has.

        Raises `TrialNotFoundError`, `AmbiguousNameError`, or `RecordDamagedError` if it cannot be read.
        """

    def report_page(
        self,
        trial_id: int,
        group: str | None = None,
        *,
        rank: Ranks = None,
        superseded: bool = False,
        after: int | None = None,
    ) -> ReportPage:
        """Returns the reports of the next steps beyond `after`, in the order of `reports`."""

    def reports(
        self, trial_id: int, group: str | None = None, *, rank: Ranks = None, superseded: bool = False
    ) -> Iterator[ReportRow]:
        """Yields all reports ordered by step, then by attempt, rank and time, and reads them page by page.

        `superseded=True` includes superseded reports, which are flagged. The profiler's groups must be asked for by
        name; they are ordered by time, and without a `rank` they are those of all nodes.
        """
        page = self.report_page(trial_id, group, rank=rank, superseded=superseded)
        yield from page.reports
        while page.next_after is not None:
            page = self.report_page(trial_id, group, rank=rank, superseded=superseded, after=page.next_after)
            yield from page.reports

    def media(self, trial_id: int, *, rank: Ranks = None, superseded: bool = False) -> list[MediaRow]:
        """Returns the files of media that the trial has reported, in the order of `reports`.

        After them come those that its script has written into TensorBoard's event files, in the group "tensorboard".
        """

    def alerts(self, trial_id: int) -> list[AlertRow]:
        """Returns the alerts of the trial's script, in order."""

    def groups(self, trial_id: int) -> list[str]:
        """Returns the groups in which anything was reported, the profiler's too."""

    def reporting_ranks(self, trial_id: int) -> list[int]:
        """Returns the ranks that have reported metrics in any attempt, in order."""

    def ranks_by_metric(self, trial_id: int) -> dict[tuple[str, str], list[int]]:
        """Returns the ranks that have reported each metric in any attempt, by its group and its name."""

    def series(self, trial_id: int, *, rank: int | None = None) -> list[SeriesRow]:
        """Returns the metrics that a rank has reported. `Ranks` says what None means, here and in all methods."""

    def profile_series(self, trial_id: int) -> list[ProfileSeriesRow]:
        """Returns the profiler's figures that were recorded of the trial's nodes."""

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
    ) -> list[SeriesBucket]:
        """Returns at most `num_buckets` buckets, equally wide in steps, in order; buckets without points are left out.

        `within` is the first and the last step to include. With `superseded_of`, the points are those of this attempt
        that later ones have superseded. With `is_profile`, the series is a figure of the profiler of a rank, and its
        steps are milliseconds since the Unix epoch.
        """

    def step_range(
        self, trial_ids: Collection[int], group: str, name: str, *, rank: int | None = None
    ) -> tuple[int, int] | None:
        """Returns the first and the last visible step of a metric in these trials, or None if none has it."""

    def bins(
        self,
        trial_id: int,
        group: str,
        name: str,
        width: int,
        *,
        within: tuple[int, int] | None = None,
        rank: int | None = None,
    ) -> Bins:
        """Returns the visible points of a metric in bins of `width` steps. `within` is that of `buckets`."""

    def bucket_times(
        self,
        trial_id: int,
        group: str,
        name: str,
        buckets: Sequence[SeriesBucket],
        *,
        superseded_of: int | None = None,
        rank: int | None = None,
    ) -> list[float]:
        """Returns the time at which the newest point of each of these buckets was reported."""

    def resume_points(self, trial_id: int) -> list[int]:
        """Returns the steps from which later attempts went on."""

    def summary(self, trial_id: int) -> Summary: ...

    def figures(self, trial_ids: Collection[int] | None = None, *, rank: int | None = None) -> FiguresByTrial:
        """Returns the figures of every visible metric of these trials, or of all, without reading all points."""

    def checkpoints(self, *, trial_id: int | None = None, experiment_id: int | None = None) -> list[CheckpointRow]:
        """Returns the checkpoints of the newest trial first, the newest of each trial first; deleted ones too."""

    def checkpoint(self, storage_id: str) -> CheckpointRow:
        """Returns a checkpoint. Raises `CheckpointNotFoundError`."""

    def best_validations(self, experiment_id: int, metric: str, *, smaller_is_better: bool) -> dict[int, Metric]:
        """Returns the best value of a validation metric by trial. Trials without one are left out. NaN never wins."""

    def validation_metric_names(self, experiment_id: int) -> set[str]: ...


class Tracker(Protocol):
    """The place where records are kept. Each call answers from the records as they are when it is made."""

    @property
    def location(self) -> str:
        """The place of the records, for messages."""

    def view(self, on_progress: Callable[[Reading], None] | None = None) -> AbstractContextManager[View]:
        """Opens a view for questions that belong together. Leave it soon: it may hold a file or a connection open.

        Two threads may not use it at the same time. `on_progress` is called with the progress of reading the records,
        here and in `refresh`; an exception that it raises ends the reading.
        """

    def experiment_record(self, experiment_id: int) -> ExperimentRecord:
        """Returns the record of an experiment. Raises `ExperimentNotFoundError` or `RecordDamagedError`."""

    def trial_record(self, trial_id: int) -> TrialRecord:
        """Returns the record of a trial. Raises `TrialNotFoundError` or `RecordDamagedError`."""

    def command(self, trial_id: int) -> CommandRecord | None:
        """Returns the command that starts the trial's script again, if known. Raises `RecordDamagedError`."""

    def attempts(self, trial_id: int) -> list[AttemptRow]:
        """Returns the trial's attempts in order. Raises `TrialNotFoundError`."""

    def read_log(self, trial_id: int, attempt: int, offset: int, max_bytes: int) -> bytes:
        """Returns the output of an attempt from byte `offset` on; empty at its end, and if none was kept."""

    def read_media(self, trial_id: int, name: str) -> bytes:
        """Returns the content of a file of media, by its `MediaFile.name`, and verifies it.

        Raises `RecordDamagedError` if it is missing or damaged, and `UnsafePathError` for a name that no file has.
        """

    def read_reports(self, trial_id: int, start: StreamPosition, rank: int = 0) -> ReportStretch:
        """Returns reports that a rank has made since `start`, in the order of the calls; empty if nothing is new."""

    def stop_request(self, trial_id: int, attempt: int) -> StopRequest | None:
        """Returns the request that the attempt stop, or None. Raises `RecordDamagedError` if it cannot be read."""

    def plan_collection(self, request: Request) -> CollectionPlan:
        """Returns what a policy would delete. Raises the errors of `tracking.deletion.collection.Collector.plan`."""

    def carry_out_collection(self, request: Request, plan: CollectionPlan, *, wait_s: float = -1) -> Deletions:
        """Deletes the checkpoints that `plan` and a second plan condemn. Raises `CollectionRunningError`."""
