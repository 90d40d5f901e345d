"""The questions that the index answers about the records of a home.

What the index does not hold is read from the files, through `Home`: output, code, configurations and models. Reports
come in pages; every other answer is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from core_sdk._ground.records import Metric, Source
from core_sdk._home.rows import (
    AlertRow,
    Bins,
    CheckpointRow,
    ExperimentRow,
    FiguresByTrial,
    Marks,
    MediaRow,
    Outline,
    ProfileSeriesRow,
    Ranks,
    ReportPage,
    ReportRow,
    SeriesBucket,
    SeriesRow,
    Summary,
    TimeRow,
    TrialRow,
    WhichTrials,
)


class View(Protocol):
    """A snapshot of the records of a home. Only whether a process lives is looked up in each call."""

    def experiments(self, experiment_ids: Collection[int] | None = None) -> list[ExperimentRow]:
        """Returns the experiments that have trials or were begun by a master. `experiment` finds others, too."""

    def experiment(self, id_or_name: int | str) -> ExperimentRow:
        """Returns an experiment. Raises `ExperimentNotFoundError`, `AmbiguousNameError` or `RecordDamagedError`."""

    def refresh(self, *, only_open: bool = False) -> object:
        """Updates a view that is kept for long. With `only_open`, known trials that have ended are not checked."""

    def refresh_part(self, within_s: float) -> bool:
        """Updates the view with the newest trials for about so long, and returns whether that was all."""

    def left_out(self) -> list[str]:
        """Returns the names of the records of trials and experiments that cannot be read."""

    def marks(self) -> Marks:
        """Returns what to compare, to learn what has changed since: of all trials, and of `experiments`."""

    def trials(
        self, experiment_id: int | None = None, *, trial_ids: Collection[int] | None = None
    ) -> list[TrialRow]: ...

    def trial_ids(self, experiment_id: int | None = None, which: WhichTrials = "all") -> list[int]:
        """Returns the ids of trials, in order. This is much faster than `trials`: no records are decoded."""

    def trial(self, id_or_name: int | str) -> TrialRow:
        """Returns a trial, by its id or by a name that only one has.

        Raises `TrialNotFoundError`, `AmbiguousNameError`, or `RecordDamagedError` if it cannot be read.
        """

    def times(self, experiment_id: int | None = None, *, trial_ids: Collection[int] | None = None) -> list[TimeRow]:
        """Returns where the time of each of these trials went; up to now if it runs or waits for its next attempt."""

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
        name; they are ordered by time, and without a `rank` they come from all nodes.
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

    def outline(self, trial_id: int) -> Outline:
        """Returns what the trial has reported, without the values."""

    def series(self, trial_id: int, *, rank: Source | None = None) -> list[SeriesRow]:
        """Returns the metrics of a rank or a writer. `Ranks` says what None means, here and in all methods."""

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
        rank: Source | None = None,
        is_profile: bool = False,
    ) -> list[SeriesBucket]:
        """Returns at most `num_buckets` buckets, equally wide in steps, in order; buckets without points are left out.

        `within` is the first and the last step to include. With `superseded_of`, the points are the ones of this
        attempt that later ones have superseded. With `is_profile`, the series is a figure of the profiler of a rank,
        and its steps are milliseconds since the Unix epoch.
        """

    def step_range(
        self, trial_ids: Collection[int], group: str, name: str, *, rank: Source | None = None
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
        rank: Source | None = None,
    ) -> Bins:
        """Returns the visible points of a metric in bins of `width` steps. `within` is as in `buckets`."""

    def bucket_times(
        self,
        trial_id: int,
        group: str,
        name: str,
        buckets: Sequence[SeriesBucket],
        *,
        superseded_of: int | None = None,
        rank: Source | None = None,
    ) -> list[float]:
        """Returns the time at which the newest point of each of these buckets was reported."""

    def summary(self, trial_id: int) -> Summary: ...

    def figures(self, trial_ids: Collection[int] | None = None, *, rank: Source | None = None) -> FiguresByTrial:
        """Returns the figures of every visible metric of these trials, or of all, without reading all points."""

    def checkpoints(self, *, trial_id: int | None = None, experiment_id: int | None = None) -> list[CheckpointRow]:
        """Returns the checkpoints of the newest trial first, the newest of each trial first; deleted ones too."""

    def checkpoint(self, storage_id: str) -> CheckpointRow:
        """Returns a checkpoint. Raises `CheckpointNotFoundError`."""

    def best_values(self, experiment_id: int, group: str, name: str, *, smaller_is_better: bool) -> dict[int, Metric]:
        """Returns the best finite value of a metric by trial, in the order of ids. Trials without one are left out."""

    def metric_names(self, experiment_id: int) -> set[tuple[str, str]]:
        """Returns the group and the name of each metric of the experiment's trials."""
