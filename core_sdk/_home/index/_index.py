"""The index: opens the database, refreshes and repairs it, and answers questions."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

import msgspec

from core_sdk._ground.records import MAX_INT, Metric, Source
from core_sdk._home.folders import Home
from core_sdk._home.index import _checkpoints, _curves, _refresh, _reports, _trials
from core_sdk._home.index._database import (
    DamagedError,
    Database,
    UnusableError,
    cannot_write,
    database_lock,
    is_damage,
    remove,
)
from core_sdk._home.index._holders import SuspendedError
from core_sdk._home.index._schema import Where, among
from core_sdk._home.index._transaction import IndexTransaction, ReadingProgress, RefreshResult
from core_sdk._home.index._trials import AttemptKey
from core_sdk._home.media import HomeMedia
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
    Reading,
    ReportPage,
    SeriesBucket,
    SeriesRow,
    Summary,
    TimeRow,
    TrialRow,
    WhichTrials,
)
from core_sdk._home.view import View
from core_sdk.errors import (
    AmbiguousNameError,
    CheckpointNotFoundError,
    ExperimentNotFoundError,
    HomeNotWritableError,
    RecordDamagedError,
    TrialNotFoundError,
)

logger = logging.getLogger("core_sdk.tracking")

_MAY_BE_DAMAGE = (DamagedError, sqlite3.DatabaseError, UnicodeDecodeError, msgspec.MsgspecError)

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Index(View):
    """The index of a home. It answers as of the last `refresh`; only whether a process lives is looked up each time.

    A file that is damaged, or that another version has made, is built again with a warning. If no file can be written,
    there is no home, or a suspended process holds a lock of the file, the index is kept in memory.
    """

    def __init__(
        self,
        home: Home,
        on_progress: Callable[[Reading], None] | None = None,
        media: HomeMedia | None = None,
    ) -> None:
        """`on_progress` is called with the progress of each refresh. `media` may know event files already."""
        self.home = home
        self._media = media or HomeMedia(home)
        self._on_progress = on_progress
        self._left_out: dict[Path, str] = {}
        self._homes_left_out: Mapping[Path, str] = {}
        self._unread: list[int] = []
        """The trials that the next part of a refresh begins with."""
        can_write = os.access(home.root, os.W_OK)
        self._database = Database(home.database if can_write else None)

    @classmethod
    def rebuild(cls, home: Home) -> RefreshResult:
        """Deletes the database and builds it again. Raises `HomeNotWritableError`."""
        with cls(home) as index:
            if home.root.is_dir():
                try:
                    with database_lock(home.database):
                        remove(home.database)
                except (OSError, SuspendedError) as error:
                    raise HomeNotWritableError(home.root, getattr(error, "strerror", None) or str(error)) from error
            return index.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def refresh(self, *, only_open: bool = False, trial_id: int | None = None) -> RefreshResult:
        """Indexes what the journals gained, of all trials or of one. Blocks while another process does so.

        Does not wait for a process that is suspended. Takes the lock of those who write only if there is something to
        write.
        """
        self._renew()
        if self._is_up_to_date(only_open=only_open, trial_id=trial_id):
            self._left_out = {}
            return RefreshResult()
        return self._writing(partial(self._refresh, only_open=only_open, trial_id=trial_id))

    def _is_up_to_date(self, *, only_open: bool, trial_id: int | None) -> bool:
        """Returns whether nothing has changed; False also for a database that cannot be read."""
        try:
            with self._database.connect() as connection:
                return not _refresh.find_changes(connection, self.home, only_open=only_open, trial_id=trial_id)
        except (UnusableError, SuspendedError, *_MAY_BE_DAMAGE):
            return False

    def refresh_part(self, within_s: float) -> bool:
        self._renew()
        self._unread = self._writing(partial(self._refresh, within_s=within_s, trial_ids=self._unread)).unread
        return not self._unread

    def left_out(self) -> list[str]:
        homes = [f"{root}: {reason}" for root, reason in self._homes_left_out.items()]
        return [*map(self.home.name_of, self._left_out), *homes]

    def _renew(self) -> None:
        """Looks for new homes, where several are read as one, and warns once of each that is left out."""
        left_out = self.home.renew()
        for root, reason in left_out.items():
            if self._homes_left_out.get(root) != reason:
                logger.warning("the home %s is left out: %s", root, reason)
        self._homes_left_out = left_out

    def marks(self) -> Marks:
        return self._ask(_trials.read_marks)

    def times(self, experiment_id: int | None = None, *, trial_ids: Collection[int] | None = None) -> list[TimeRow]:
        where = _of_trials(experiment_id, trial_ids)
        return self._ask(_trials.read_times, where, self._is_running(where))

    def experiments(self, experiment_ids: Collection[int] | None = None) -> list[ExperimentRow]:
        chosen = among("experiment_id", experiment_ids)
        return self._experiments(Where(f"({_trials.IS_LISTED}) AND {chosen.sql}", chosen.values))

    def experiment(self, id_or_name: int | str) -> ExperimentRow:
        if isinstance(id_or_name, int):
            is_possible = id_or_name < MAX_INT  # SQLite refuses greater numbers
            found = self._experiments(Where("experiment_id = ?", (id_or_name,))) if is_possible else []
            if not found:
                self.home.experiment(id_or_name).read()
        else:
            found = self._experiments(Where("name = ? AND (has_search OR NOT is_submitted)", (id_or_name,)))
        if not found:
            raise ExperimentNotFoundError(id_or_name, self.home.root)
        if len(found) > 1:
            raise AmbiguousNameError(str(id_or_name), [row.experiment_id for row in found])
        return found[0]

    def trials(self, experiment_id: int | None = None, *, trial_ids: Collection[int] | None = None) -> list[TrialRow]:
        return self._trials(_of_trials(experiment_id, trial_ids))

    def trial_ids(self, experiment_id: int | None = None, which: WhichTrials = "all") -> list[int]:
        return self._ask(_trials.read_ids, _of_trials(experiment_id, None), which)

    def trial(self, id_or_name: int | str) -> TrialRow:
        if isinstance(id_or_name, int):
            is_possible = id_or_name < MAX_INT
            found = self._trials(Where("trial.trial_id = ?", (id_or_name,))) if is_possible else []
            if not found:
                self.home.trial(id_or_name).read_record()
        else:
            found = [row for row in self.trials() if row.name == id_or_name]
        if not found:
            raise TrialNotFoundError(id_or_name, self.home.root)
        if len(found) > 1:
            raise AmbiguousNameError(str(id_or_name), [row.trial_id for row in found], "trial")
        return found[0]

    def report_page(
        self,
        trial_id: int,
        group: str | None = None,
        *,
        rank: Ranks = None,
        superseded: bool = False,
        after: int | None = None,
    ) -> ReportPage:
        of = _reports.ReportsOf(trial_id, group, rank, superseded)
        return self._ask(_reports.read_page, of, after)

    def media(self, trial_id: int, *, rank: Ranks = None, superseded: bool = False) -> list[MediaRow]:
        found = self._ask(_reports.read_media, _reports.ReportsOf(trial_id, None, rank, superseded))
        if rank in (None, 0, "all") and (files := self._media.of(trial_id)) is not None:
            rows = files.rows(trial_id, self._ask(_trials.read_starts, trial_id))
            found += [row for row in rows if superseded or not row.is_superseded]
        return found

    def alerts(self, trial_id: int) -> list[AlertRow]:
        return self._ask(_trials.read_alerts, trial_id)

    def outline(self, trial_id: int) -> Outline:
        return self._ask(_curves.read_outline, trial_id)

    def series(self, trial_id: int, *, rank: Source | None = None) -> list[SeriesRow]:
        return self._ask(_curves.read_series, trial_id, rank)

    def profile_series(self, trial_id: int) -> list[ProfileSeriesRow]:
        return self._ask(_curves.read_profile_series, trial_id)

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
        of = _curves.BucketsOf(trial_id, group, name, within, superseded_of, rank, is_profile)
        return self._ask(_curves.read_buckets, of, num_buckets)

    def step_range(
        self, trial_ids: Collection[int], group: str, name: str, *, rank: Source | None = None
    ) -> tuple[int, int] | None:
        return self._ask(_curves.read_step_range, trial_ids, group, name, rank)

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
        of = _curves.BucketsOf(trial_id, group, name, within, rank=rank, only_finite=True)
        return self._ask(_curves.read_bins, of, width)

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
        of = _curves.BucketsOf(trial_id, group, name, superseded_of=superseded_of, rank=rank)
        return self._ask(_curves.read_bucket_times, of, buckets)

    def summary(self, trial_id: int) -> Summary:
        return self._ask(_curves.read_summary, trial_id)

    def figures(self, trial_ids: Collection[int] | None = None, *, rank: Source | None = None) -> FiguresByTrial:
        return self._ask(_curves.read_figures, trial_ids, rank)

    def checkpoints(self, *, trial_id: int | None = None, experiment_id: int | None = None) -> list[CheckpointRow]:
        where = Where(
            "ifnull(trial.trial_id = ?, TRUE) AND ifnull(trial.experiment_id = ?, TRUE)", (trial_id, experiment_id)
        )
        return self._ask(_checkpoints.read_checkpoints, self.home, where)

    def checkpoint(self, storage_id: str) -> CheckpointRow:
        where = Where("storage_id = ?", (storage_id,))
        if not (found := self._ask(_checkpoints.read_checkpoints, self.home, where)):
            raise CheckpointNotFoundError(storage_id, str(self.home.root))
        return found[0]

    def best_values(self, experiment_id: int, group: str, name: str, *, smaller_is_better: bool) -> dict[int, Metric]:
        return self._ask(_curves.read_best_values, experiment_id, group, name, smaller_is_better=smaller_is_better)

    def metric_names(self, experiment_id: int) -> set[tuple[str, str]]:
        return self._ask(_curves.read_metric_names, experiment_id)

    def shown_series(self) -> list[_curves.SeriesOrigin]:
        """Returns the series to which the points of `shown_columns` belong."""
        return self._ask(_curves.read_shown_series)

    def count_shown_points(self) -> int:
        """Returns how many points `shown_columns` yields, unless more are reported meanwhile."""
        return self._ask(_curves.count_shown_points)

    def shown_columns(self) -> Iterator[_curves.PointColumns]:
        """Yields all points of metrics that count, in blocks. Raises `RecordDamagedError` if the index is damaged."""
        try:
            with self._database.connect() as connection:
                yield from _curves.read_shown_columns(connection)
        except _MAY_BE_DAMAGE as error:
            if not is_damage(error):
                raise
            raise RecordDamagedError(self.home.database, f"{error}; `core-sdk index rebuild` makes it again") from error

    def _experiments(self, where: Where) -> list[ExperimentRow]:
        is_running = self._is_running(_trials.in_experiments(where))
        return self._ask(_trials.read_experiments, where, is_running)

    def _trials(self, where: Where) -> list[TrialRow]:
        is_running = self._is_running(where)
        return self._ask(_trials.read_trials, self.home, where, is_running)

    def _is_running(self, where: Where) -> dict[AttemptKey, bool]:
        """Returns, for each attempt that has not recorded its end, whether it is running.

        If one is not running, it may have recorded its end since the last refresh: then the index is refreshed again.
        """
        is_running = {
            (trial_id, number): self.home.folder(trial_id).is_running(number)
            for trial_id, number in self._ask(_trials.open_attempts, where)
        }
        gone = {trial_id for (trial_id, _), runs in is_running.items() if not runs}
        if len(gone) > 0 and self._ask(_refresh.have_changed, self.home, gone):
            self._writing(partial(self._refresh, trial_ids=sorted(gone), is_told=False))
        return is_running

    def _writing(self, refresh: Callable[[], RefreshResult], problem: Exception | None = None) -> RefreshResult:
        """Refreshes the database, after it was replaced if it has a `problem` or is found to be damaged."""
        try:
            with self._database.lock():
                if problem is None:
                    try:
                        return refresh()
                    except _MAY_BE_DAMAGE as error:
                        if not is_damage(error):
                            raise
                        problem = error
                self._database.replace(problem)
                return refresh()
        except (SuspendedError, UnusableError, sqlite3.DatabaseError, OSError) as error:
            is_of_records = isinstance(error, OSError) and not self._is_of_index(error)
            if is_of_records or not (isinstance(error, SuspendedError) or cannot_write(error)):
                raise
            self._go_on_in_memory(error)
            return self._refresh()

    def _is_of_index(self, error: OSError) -> bool:
        """Returns whether the index's own file failed, rather than a record."""
        return error.filename is None or str(error.filename).startswith(str(self.home.database))

    def _refresh(
        self,
        *,
        only_open: bool = False,
        trial_id: int | None = None,
        within_s: float = math.inf,
        trial_ids: Sequence[int] = (),
        is_told: bool = True,
    ) -> RefreshResult:
        """Indexes what is new, or what is new in one trial, or in these trials without looking for changes."""
        with self._database.connect() as connection:
            changes = (
                _refresh.Changes([], list(trial_ids))
                if trial_ids
                else _refresh.find_changes(connection, self.home, only_open=only_open, trial_id=trial_id)
            )
            if not changes:
                self._left_out = {}
                return RefreshResult()
            progress = ReadingProgress(len(changes.trials), self._on_progress if is_told else None)
            batch = IndexTransaction(connection, lambda: self._database.commit(connection), progress)
            result = _refresh.index_changes(self.home, changes, batch, within_s)
        self._leave_out(self._left_out | result.left_out if trial_ids or result.unread else result.left_out)
        return result

    def _leave_out(self, left_out: dict[Path, str]) -> None:
        """Warns once of each record that is damaged, or that this user may not read."""
        for path, reason in left_out.items():
            if self._left_out.get(path) != reason:
                logger.warning("%s is left out: %s", self.home.root / self.home.name_of(path), reason)
        self._left_out = left_out

    def _ask(
        self, question: Callable[Concatenate[sqlite3.Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        try:
            with self._database.connect() as connection:
                return question(connection, *args, **kwargs)
        except (UnusableError, SuspendedError, *_MAY_BE_DAMAGE) as error:
            if not isinstance(error, SuspendedError) and not cannot_write(error) and not is_damage(error):
                raise
            problem = error
        if is_damage(problem):
            self._writing(self._refresh, problem)
        else:
            self._go_on_in_memory(problem)
            self.refresh()
        with self._database.connect() as connection:
            return question(connection, *args, **kwargs)

    def _go_on_in_memory(self, problem: Exception) -> None:
        logger.warning("the index %s cannot be written (%s); it is kept in memory", self.home.database, problem)
        self._database.close()
        self._database = Database(None)


def _of_trials(experiment_id: int | None, trial_ids: Collection[int] | None) -> Where:
    of_experiment = among("trial.experiment_id", None if experiment_id is None else [experiment_id])
    of_ids = among("trial.trial_id", trial_ids)
    return Where(f"{of_experiment.sql} AND {of_ids.sql}", of_experiment.values + of_ids.values)
