"""What a search must know of its trials is read once, as it comes."""

from __future__ import annotations

import pytest
from home.journals import START, append, lines, new_trial, record, report, started

from core_sdk._ground.records import EarlyExit, OperationCompleted, ProgressReported, Record, StopAcknowledged
from core_sdk._home import Home
from core_sdk._home.rows import News, StreamPosition
from core_sdk._home.streams import read_news, read_reports

RECORDS: list[Record] = [
    report(1, loss=0.5),
    report(1, "validation", loss=0.25),
    ProgressReported(time=START, progress=0.1),
    report(2, "validation", loss=0.125),
    report(2, "other", loss=1.0),
    OperationCompleted(time=START, length=2, metric=0.125),
    EarlyExit(time=START, reason="EXITED_REASON_INVALID_HP"),
    StopAcknowledged(time=START, source="the searcher"),
]
WANTED = [RECORDS[index] for index in (1, 3, 5, 6, 7)]


def records(news: tuple[News, ...]) -> list[Record]:
    return [each.record for each in news]


def test_all_that_a_search_depends_on_is_told_in_order(home: Home) -> None:
    """The news of a trial are the records that a search needs, in order, and each is read once."""
    record(new_trial(home), *RECORDS)

    stretch = read_news(home.folder(1), StreamPosition())
    again = read_news(home.folder(1), stretch.end)

    assert records(stretch.news) == WANTED
    assert (again.news, again.end) == ((), stretch.end)


def test_nothing_is_told_twice_from_behind_each_record(home: Home) -> None:
    """Reading on from any record gives exactly the records that follow it."""
    record(new_trial(home), *RECORDS)
    news = read_news(home.folder(1), StreamPosition()).news

    rests = [records(read_news(home.folder(1), each.end).news) for each in news]

    assert rests == [WANTED[index + 1 :] for index in range(len(WANTED))]


def test_a_line_that_is_being_written_is_told_when_it_is_whole(home: Home) -> None:
    """A partial line is read when it is complete, also after a damaged line."""
    folder = new_trial(home)
    whole = lines(RECORDS[1])
    append(folder, 1, lines(started(folder)) + b"damaged\n" + whole[:20])

    early = read_news(home.folder(1), StreamPosition())
    append(folder, 1, whole[20:])
    late = read_news(home.folder(1), early.end)

    assert early.news == ()
    assert records(late.news) == [RECORDS[1]]


def test_a_trial_without_a_journal_has_no_news(home: Home) -> None:
    """A trial without a journal has no news."""
    new_trial(home)

    assert read_news(home.folder(1), StreamPosition()).end == StreamPosition()
    assert read_news(home.folder(7), StreamPosition()).news == ()


def test_the_attempts_of_a_launcher_that_starts_anew_are_read_on(home: Home) -> None:
    """Reading goes on with the journals of later attempts, even after a partial line."""
    folder = new_trial(home)
    record(folder, RECORDS[1])
    append(folder, 1, lines(RECORDS[3])[:20])
    first = read_news(home.folder(1), StreamPosition())
    record(folder, RECORDS[5], attempt=2)
    record(folder, attempt=3)

    second = read_news(home.folder(1), first.end)
    record(folder, RECORDS[7], attempt=4)
    fourth = read_news(home.folder(1), second.end)

    assert [records(stretch.news) for stretch in (first, second, fourth)] == [[RECORDS[1]], [RECORDS[5]], [RECORDS[7]]]
    assert [stretch.end.attempt for stretch in (first, second, fourth)] == [1, 3, 4]


@pytest.mark.parametrize("num_more", [-1, 0, 3])
def test_a_journal_that_was_replaced_is_told_from_its_beginning(home: Home, num_more: int) -> None:
    """A journal that was replaced is read from its beginning by searches and by followers of reports."""
    folder = new_trial(home)
    record(folder, *(report(step, "validation", loss=0.5) for step in range(10, 15)))
    known = read_news(home.folder(1), StreamPosition()).end
    followed = read_reports(home.trial(1), StreamPosition()).end
    folder.journal_path(1).unlink()
    record(folder, *(report(step, "validation", loss=1.5) for step in range(20, 25 + num_more)))

    news = records(read_news(home.folder(1), known).news)
    reports = read_reports(home.trial(1), followed).reports

    expected = [report(step, "validation", loss=1.5) for step in range(20, 25 + num_more)]
    # A search asks for no more than the sizes while nothing seems to be new.
    assert news == ([] if num_more == 0 else expected)
    assert [row.steps_completed for row in reports] == [one.steps_completed for one in expected]
