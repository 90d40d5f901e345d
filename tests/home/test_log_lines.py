"""The output of an attempt by the numbers of its lines."""

from __future__ import annotations

import time

import pytest
from home.journals import new_trial, record

from core_sdk._home import Home
from core_sdk._home.logs.lines import LogFilter, LogLines
from core_sdk._home.logs.stream import LogReader

LONG = 300_000


def lines_of(home: Home, content: bytes) -> LogLines:
    folder = new_trial(home)
    record(folder)
    folder.log_path(1).write_bytes(content)
    return LogLines(home, folder.trial_id, 1)


@pytest.mark.parametrize("first", [0, 1, 4_000, 49_998, 49_999, -1, -5])
def test_any_line_is_found_by_its_number(home: Home, first: int) -> None:
    """Any line can be read by its number, also across the blocks in which the log is read."""
    log = lines_of(home, b"".join(b"line %d of many\n" % number for number in range(50_000)))

    page = log.read(first, 3, LogFilter())

    begin = first % 50_000
    wanted = range(begin, min(begin + 3, 50_000))
    assert [(line.number, line.text) for line in page.lines] == [(one, f"line {one} of many") for one in wanted]
    assert page.num_lines == 50_000
    assert page.next_line == (begin + 3 if begin + 3 < 50_000 else None)


@pytest.mark.parametrize("limit", [0, 1, 7, 30_000, 99_999])
def test_the_last_lines_are_read_from_the_end(home: Home, limit: int) -> None:
    """The last of all lines, and of those of a level, are the same as if all were read."""
    log = lines_of(home, b"".join(b"%s %d\n" % (b"ERROR" * (n % 5000 == 0), n) for n in range(50_000)) + b"torn")

    for wanted in (LogFilter(), LogFilter(min_level="ERROR")):
        every = log.read(0, 99_999, wanted).lines
        assert log.read_last(limit, wanted) == list(every[len(every) - min(limit, len(every)) :])


def test_the_last_lines_of_a_long_output_cost_little(home: Home) -> None:
    """Of a million lines only the last ones are looked at."""
    log = lines_of(home, b"\n" * 1_000_000)
    begin = time.process_time()

    assert [line.number for line in log.read_last(2, LogFilter())] == [999_998, 999_999]

    assert time.process_time() - begin < 2


def test_lines_longer_than_a_block_are_cut_and_counted(home: Home) -> None:
    """A line that is longer than a block is cut and counts as one line."""
    log = lines_of(home, b"a\n" + LONG * b"b" + b"\n" + LONG * b"c" + b"\nd\nlast")

    page = log.read(0, 10, LogFilter())

    assert [(line.number, line.text[:1], line.is_cut) for line in page.lines] == [
        (0, "a", False), (1, "b", True), (2, "c", True), (3, "d", False), (4, "l", False),
    ]  # fmt: skip
    assert [line.number for line in log.read(3, 10, LogFilter()).lines] == [3, 4]


def test_a_progress_bar_is_shown_as_a_terminal_shows_it(home: Home) -> None:
    """Of a progress bar only the newest state is shown, also before its line has ended."""
    bar = b"".join(b"\r%3d%%|%s|" % (number // 200, b"#" * 60) for number in range(20_001))
    log = lines_of(home, b"begin\r\n[rank=1] " + bar + b"\r\n" + bar)

    page = log.read(0, 10, LogFilter())

    assert [(line.rank, line.text[:5], line.is_cut) for line in page.lines] == [
        (None, "begin", False), (1, "100%|", False), (None, "100%|", False),
    ]  # fmt: skip


def test_lines_are_chosen_by_rank_level_and_text(home: Home) -> None:
    """Lines can be filtered by rank, level and text; a launcher's own lines have no rank."""
    log = lines_of(home, b"starting\n[rank=0] INFO: a\n[rank=1] ERROR: Broken\n[rank=1] fine\n")

    def found(wanted: LogFilter) -> list[str]:
        return [line.text for line in log.read(0, 10, wanted).lines]

    assert found(LogFilter(ranks=[1])) == ["ERROR: Broken", "fine"]
    assert found(LogFilter(min_level="WARNING")) == ["ERROR: Broken"]
    assert found(LogFilter(search="broken")) == ["ERROR: Broken"]


def test_lines_that_come_later_are_counted_on(home: Home) -> None:
    """New lines continue the numbering, and an unfinished line is read again with its end."""
    log = lines_of(home, b"one\ntw")
    before = log.read(0, 10, LogFilter())
    folder = home.trial(1)

    with folder.log_path(1).open("ab") as file:
        file.write(b"o\nthree\n")

    assert [line.text for line in before.lines] == ["one", "tw"]
    assert [line.text for line in log.read(before.num_lines - 1, 10, LogFilter()).lines] == ["two", "three"]


@pytest.mark.parametrize("num_lines", [3, 20_000, 60_000])
def test_an_output_that_was_replaced_is_read_from_its_beginning(home: Home, num_lines: int) -> None:
    """A log that was replaced is read from its beginning, whatever its length."""
    lines = lines_of(home, b"an old line\n" * 30_000)
    reader = LogReader(home, 1)
    assert len(b"".join(chunk.content for chunk in reader.read())) == 360_000
    assert lines.read(0, 1, LogFilter()).num_lines == 30_000
    log = home.folder(1).log_path(1)
    log.unlink()
    log.write_bytes(b"a new line\n" * num_lines)

    page = lines.read(0, 1, LogFilter())
    followed = b"".join(chunk.content for chunk in reader.read())

    assert (page.lines[0].text, page.num_lines) == ("a new line", num_lines)
    assert followed == b"a new line\n" * num_lines
