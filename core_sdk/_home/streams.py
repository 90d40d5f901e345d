"""Reads journals on from where the last reader stopped, while a trial runs and without the index."""

from __future__ import annotations

import contextlib
from pathlib import Path

from core_sdk._ground.files import fingerprint
from core_sdk._ground.records import EarlyExit, OperationCompleted, Report, Source, StopAcknowledged, TroubleFound
from core_sdk._home.folders import TrialFolder
from core_sdk._home.journal import Chunk, find_records, read_journal
from core_sdk._home.rows import News, NewsStretch, ReportRow, ReportStretch, StreamPosition
from core_sdk._home.superseding import EVERYTHING

_STRETCH_BYTES = 1 << 20


def read_reports(folder: TrialFolder, start: StreamPosition, rank: Source = 0) -> ReportStretch:
    """Returns reports of a rank or a writer since `start`, in the order of the calls; empty if nothing is new."""
    for attempt in folder.attempts():
        journal = folder.journal_path(attempt, rank)
        if attempt < start.attempt or not journal.exists():
            continue
        offset = _offset_in(journal, start) if attempt == start.attempt else 0
        for chunk in read_journal(journal, offset, chunk_bytes=_STRETCH_BYTES):
            rows = _rows(folder.trial_id, attempt, rank, chunk)
            return ReportStretch(rows, _position(journal, attempt, chunk.end_offset))
    return ReportStretch((), start)


def read_news(folder: TrialFolder, start: StreamPosition) -> NewsStretch:
    """Returns the records since `start` on which a search depends, in the order of the calls.

    If nothing is new, this only checks two files. Later attempts, which a launcher has begun after the one of `start`,
    are read too.
    """
    position, news = start, list[News]()
    while True:
        # This is checked before reading: once there is a next attempt, the journal of this one no longer grows.
        has_next = folder.journal_path(position.attempt + 1).exists()
        if (size_bytes(folder.journal_path(position.attempt)) or position.offset) != position.offset:
            found, position = _read_news(folder, position)
            news += found
        if not has_next:
            return NewsStretch(tuple(news), position)
        position = StreamPosition(position.attempt + 1)


def read_validations(folder: TrialFolder, start: StreamPosition, rank: Source) -> list[tuple[Report, StreamPosition]]:
    """Returns the validation reports of a rank or a writer since `start`, each with the position that follows it."""
    news, _ = _read_news(folder, start, rank)
    return [(each.record, each.end) for each in news if isinstance(each.record, Report)]


def _rows(trial_id: int, attempt: int, rank: Source, chunk: Chunk) -> tuple[ReportRow, ...]:
    rows = []
    for record in chunk.records:
        if isinstance(record, Report):
            with contextlib.suppress(ValueError):  # the index, which counts damage, leaves it out too
                rows.append(ReportRow.recorded(trial_id, attempt, rank, record))
    return tuple(rows)


def _read_news(folder: TrialFolder, start: StreamPosition, rank: Source = 0) -> tuple[list[News], StreamPosition]:
    """Reads from `start` to the end of the journal that a rank keeps of the attempt."""
    journal = folder.journal_path(start.attempt, rank)
    news, offset = list[News](), _offset_in(journal, start)
    for chunk in read_journal(journal, offset, chunk_bytes=_STRETCH_BYTES):
        for record, end in zip(chunk.records, chunk.ends, strict=True):
            match record:
                case Report(group="validation") | OperationCompleted() | EarlyExit() | StopAcknowledged():
                    news.append(News(record, StreamPosition(start.attempt, end)))
        offset = chunk.end_offset
    return _untroubled(folder, start.attempt, news), _position(journal, start.attempt, offset)


def _untroubled(folder: TrialFolder, attempt: int, news: list[News]) -> list[News]:
    """Returns the news without validations of a training in trouble, whose steps come to nothing."""
    if not any(isinstance(each.record, Report) for each in news):
        return news
    found = [
        each for each in find_records(folder.journal_path(attempt), ['"trouble"']) if isinstance(each, TroubleFound)
    ]
    good_until = min((trouble.good_until for trouble in found if trouble.spoils), default=EVERYTHING)
    return [each for each in news if not isinstance(each.record, Report) or each.record.steps_completed <= good_until]


def _position(journal: Path, attempt: int, offset: int) -> StreamPosition:
    return StreamPosition(attempt, offset, fingerprint(journal, offset))


def _offset_in(journal: Path, position: StreamPosition) -> int:
    """Returns the offset from which to read on. If another journal has taken the place of the known one, it is 0."""
    is_known = position.fingerprint in (None, fingerprint(journal, position.offset))
    return position.offset if is_known else 0


def size_bytes(path: Path) -> int | None:
    """Returns the size of a file; None if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
