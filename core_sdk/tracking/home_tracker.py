"""The tracker of a home: it reads records from the folder, and answers most questions from the index."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from core_sdk.errors import (
    TrialNotFoundError,
)
from core_sdk.files import fingerprint, opened_regular
from core_sdk.journal import Chunk, read_journal
from core_sdk.records import (
    CommandRecord,
    EarlyExit,
    ExperimentRecord,
    OperationCompleted,
    Report,
    StopAcknowledged,
    StopRequest,
    TrialRecord,
)
from core_sdk.tracking.home import Home, TrialFolder
from core_sdk.tracking.media import ScriptMedia, check_media_name, read_media
from core_sdk.tracking.rows import (
    AttemptRow,
    News,
    NewsStretch,
    Reading,
    ReportRow,
    ReportStretch,
    StreamPosition,
)
from core_sdk.tracking.tracker import Tracker, View

if TYPE_CHECKING:
    from core_sdk.tracking.deletion.collection import CollectionPlan, Deletions, Request
    from core_sdk.tracking.index import RefreshResult

_STRETCH_BYTES = 1 << 20


class HomeTracker(Tracker):
    """The tracker of a home. A home that does not exist counts as empty. Nothing stays open between calls."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._script_media = ScriptMedia(home)

    @property
    def location(self) -> str:
        return str(self.home.root)

    @contextlib.contextmanager
    def view(self, on_progress: Callable[[Reading], None] | None = None) -> Iterator[View]:
        from core_sdk.tracking.index import Index  # a database, which most trainings do not need

        with Index(self.home, on_progress, self._script_media) as index:
            index.refresh()
            yield index

    def experiment_record(self, experiment_id: int) -> ExperimentRecord:
        return self.home.experiment(experiment_id).read()

    def trial_record(self, trial_id: int) -> TrialRecord:
        return self.home.trial(trial_id).read_record()

    def command(self, trial_id: int) -> CommandRecord | None:
        return self.home.trial(trial_id).read_command()

    def attempts(self, trial_id: int) -> list[AttemptRow]:
        folder = self.home.trial(trial_id)
        try:
            numbers = folder.attempts()
        except FileNotFoundError as error:
            raise TrialNotFoundError(trial_id, self.home.root) from error
        running = folder.running_attempts()
        others = folder.rank_journals()
        return [
            AttemptRow(
                trial_id=trial_id,
                attempt=attempt,
                is_running=attempt in running,
                log_size_bytes=_size_bytes(folder.log_path(attempt)),
                ranks=(0, *(rank for number, rank in others if number == attempt)),
            )
            for attempt in numbers
        ]

    def read_log(self, trial_id: int, attempt: int, offset: int, max_bytes: int) -> bytes:
        try:
            with opened_regular(self.home.trial(trial_id).log_path(attempt)) as descriptor:
                return os.pread(descriptor, max_bytes, offset)
        except FileNotFoundError:
            return b""

    def read_media(self, trial_id: int, name: str) -> bytes:
        directory = self.home.trial(trial_id).media_path
        is_file = (directory / check_media_name(name)).exists()
        files = None if is_file else self._script_media.of(trial_id)
        content = None if files is None else files.content(name)
        return read_media(directory, name) if content is None else content

    def read_reports(self, trial_id: int, start: StreamPosition, rank: int = 0) -> ReportStretch:
        folder = self.home.trial(trial_id)
        for attempt in folder.attempts():
            journal = folder.journal_path(attempt, rank)
            if attempt < start.attempt or not journal.exists():
                continue
            offset = _offset_in(journal, start) if attempt == start.attempt else 0
            for chunk in read_journal(journal, offset, chunk_bytes=_STRETCH_BYTES):
                return ReportStretch(
                    _rows(trial_id, attempt, rank, chunk), _position(journal, attempt, chunk.end_offset)
                )
        return ReportStretch((), start)

    def stop_request(self, trial_id: int, attempt: int) -> StopRequest | None:
        return self.home.folder(trial_id).read_stop_request(attempt)

    def plan_collection(self, request: Request) -> CollectionPlan:
        from core_sdk.tracking.deletion.collection import Collector

        with Collector(self.home, request) as collector:
            return collector.plan()

    def carry_out_collection(self, request: Request, plan: CollectionPlan, *, wait_s: float = -1) -> Deletions:
        from core_sdk.tracking.deletion.collection import Collector

        with Collector(self.home, request) as collector:
            return collector.carry_out(plan, wait_s=wait_s)

    # The methods below need the folder to be on this machine, so the seam does not have them.

    def read_news(self, trial_id: int, start: StreamPosition) -> NewsStretch:
        """Returns the records since `start` on which a search depends, in the order of the calls.

        If nothing is new, this only checks two files. Later attempts, which a launcher has begun after the one of
        `start`, are read too.
        """
        folder, position, news = self.home.folder(trial_id), start, list[News]()
        while True:
            # This is checked before reading: once there is a next attempt, the journal of this one no longer grows.
            has_next = folder.journal_path(position.attempt + 1).exists()
            if (_size_bytes(folder.journal_path(position.attempt)) or position.offset) != position.offset:
                found, position = _read_news(folder, position)
                news += found
            if not has_next:
                return NewsStretch(tuple(news), position)
            position = StreamPosition(position.attempt + 1)

    def read_validations(self, trial_id: int, attempt: int, rank: int) -> list[tuple[Report, StreamPosition]]:
        """Returns the validation reports of a rank in an attempt, each with the position that follows it."""
        news, _ = _read_news(self.home.folder(trial_id), StreamPosition(attempt), rank)
        return [(each.record, each.end) for each in news if isinstance(each.record, Report)]

    def look_at_event_files(self, trial_id: int) -> int:
        """Reads what a script has written into event files since, and returns a number that changes if it has."""
        files = self._script_media.of(trial_id)
        return 0 if files is None else files.look()

    def rebuild_index(self) -> RefreshResult:
        """Deletes the index and builds it anew. Raises `HomeNotWritableError`."""
        from core_sdk.tracking.index import Index

        return Index.rebuild(self.home)


def _rows(trial_id: int, attempt: int, rank: int, chunk: Chunk) -> tuple[ReportRow, ...]:
    rows = []
    for record in chunk.records:
        if isinstance(record, Report):
            with contextlib.suppress(ValueError):  # the index, which counts damage, leaves it out too
                rows.append(ReportRow.recorded(trial_id, attempt, rank, record))
    return tuple(rows)


def _read_news(folder: TrialFolder, start: StreamPosition, rank: int = 0) -> tuple[list[News], StreamPosition]:
    """Reads from `start` to the end of the journal that a rank keeps of the attempt."""
    journal = folder.journal_path(start.attempt, rank)
    news, offset = list[News](), _offset_in(journal, start)
    for chunk in read_journal(journal, offset, chunk_bytes=_STRETCH_BYTES):
        for record, end in zip(chunk.records, chunk.ends, strict=True):
            match record:
                case Report(group="validation") | OperationCompleted() | EarlyExit() | StopAcknowledged():
                    news.append(News(record, StreamPosition(start.attempt, end)))
        offset = chunk.end_offset
    return news, _position(journal, start.attempt, offset)


def _position(journal: Path, attempt: int, offset: int) -> StreamPosition:
    return StreamPosition(attempt, offset, fingerprint(journal, offset))


def _offset_in(journal: Path, position: StreamPosition) -> int:
    """Returns the offset from which to read on. If another journal has taken the place of the known one, it is 0."""
    is_known = position.fingerprint in (None, fingerprint(journal, position.offset))
    return position.offset if is_known else 0


def _size_bytes(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
