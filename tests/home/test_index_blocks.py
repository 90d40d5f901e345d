"""The index keeps points in blocks: over their borders, restarts and refreshes, each point counts once, as it was."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from home.journals import append, everything, lines, new_trial, rebuilt, record, report, started

from core_sdk._ground.records import MAX_INT, Report, metrics_from_json
from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk._home.rows import SeriesBucket

_VALUES: list[float | str] = [-7, 2**63, 0.1, -0.0, 1e300, "NaN"]


def numbers(reports: list[Report]) -> list[float]:
    return [metrics_from_json(one.metrics)["loss"] for one in reports]


def bucket(reports: list[Report]) -> SeriesBucket:
    """Returns the bucket that all these reports form."""
    steps = [one.steps_completed for one in reports]
    found = [value for value in numbers(reports) if not math.isnan(value)]
    mean: Any = pytest.approx(math.fsum(found) / len(found))
    return SeriesBucket(min(steps), max(steps), len(reports), min(found), max(found), mean)


@pytest.mark.parametrize("seed", range(3))
def test_points_come_back_from_any_blocks(home: Home, seed: int) -> None:
    """Steps go up, back and over several blocks, in journals that grow between refreshes by few points or by many."""
    chance = random.Random(seed)
    folder = new_trial(home)
    reports = [report(steps, loss=chance.choice(_VALUES)) for steps in range(6000)]
    for _ in range(3):
        begin = chance.randrange(5000)
        reports[begin : begin + 900] = sorted(reports[begin : begin + 900], key=lambda _: chance.random())
    append(folder, 1, lines(started(folder)))
    with Index(home) as index:
        begin = 0
        while begin < len(reports):
            end = begin + chance.choice([1, 1, 1, 100, 3000])
            append(folder, 1, lines(*reports[begin:end]))
            index.refresh()
            begin = end

        read = list(index.reports(1))
        reports.sort(key=lambda one: one.steps_completed)
        assert [(row.steps_completed, row.time) for row in read] == [(one.steps_completed, one.time) for one in reports]
        assert repr([row.metrics["loss"] for row in read]) == repr(numbers(reports))
        assert index.buckets(1, "training", "loss", 1) == [bucket(reports)]
        assert index.buckets(1, "training", "loss", 1, within=(1000, 3333)) == [bucket(reports[1000:3334])]
        hundreds = [bucket(reports[begin : begin + 100]) for begin in range(0, 6000, 100)]
        assert index.buckets(1, "training", "loss", 60) == hundreds
        times = index.bucket_times(1, "training", "loss", hundreds)
        assert times == [one.time for one in reports[99::100]]
        assert list(index.bins(1, "training", "loss", 128).counts) == [128] * 46 + [112]
        assert index.figures()[1]["training"]["loss"].maximum == max(v for v in numbers(reports) if v == v)
        assert everything(index) == rebuilt(home)


def test_a_restart_within_a_block_divides_it(home: Home) -> None:
    """A restart within a block supersedes exactly the steps beyond it, also while the index follows."""
    folder = new_trial(home)
    first = [report(steps, loss=float(steps)) for steps in range(3000)]
    second = [report(steps, attempt=2, loss=-float(steps)) for steps in range(1500, 2000)]
    third = [report(steps, attempt=3, loss=0.5) for steps in range(1400, 1403)]
    with Index(home) as index:
        record(folder, *first)
        index.refresh()
        record(folder, *second, attempt=2, resumed_steps=1700)
        index.refresh()
        shown_of_two = index.buckets(1, "training", "loss", 1)
        hidden_of_first = index.buckets(1, "training", "loss", 1, superseded_of=1)
        record(folder, *third, attempt=3, resumed_steps=1399)
        index.refresh()

        assert shown_of_two == [bucket(first[:1500] + second)]
        assert hidden_of_first == [bucket(first[1500:])]
        assert index.buckets(1, "training", "loss", 1) == [bucket(first[:1400] + third)]
        assert index.buckets(1, "training", "loss", 1, superseded_of=1) == [bucket(first[1400:])]
        assert index.buckets(1, "training", "loss", 1, superseded_of=2) == [bucket(second)]
        assert index.figures()[1]["training"]["loss"] == (0.5, 0.0, 1399.0)
        assert [(row.count, row.first_steps, row.last_steps) for row in index.series(1)] == [(1403, 0, 1402)]
        assert index.trial(1).steps_completed == 1402
        assert everything(index) == rebuilt(home)


def test_lines_that_were_copied_count_once(home: Home) -> None:
    """Copied lines of a journal count once, even if they are read later."""
    folder = new_trial(home)
    reports = [report(steps, loss=float(steps)) for steps in range(2000)]
    record(folder, *reports, *reports[500:700])
    with Index(home) as index:
        index.refresh()
        append(folder, 1, lines(*reports[900:1100], report(2000, loss=5.0)))
        index.refresh()

        assert [row.steps_completed for row in index.reports(1)] == list(range(2001))
        assert index.summary(1)["training"]["loss"]["count"] == 2001


def test_of_many_reports_at_one_step_the_last_counts(home: Home) -> None:
    """Of thousands of reports at one step the last one counts, and the others are kept in order."""
    folder = new_trial(home)
    record(folder, *(Report(1_750_000_000.0 + number, "training", 7, {"loss": number}) for number in range(3000)))
    with Index(home) as index:
        index.refresh()
        append(folder, 1, lines(Report(1_750_000_000.5, "training", 7, {"loss": MAX_INT})))
        index.refresh()

        assert [row.metrics["loss"] for row in index.reports(1)] == [MAX_INT]
        assert [row.metrics["loss"] for row in index.reports(1, superseded=True)] == [*range(3000), MAX_INT]
        assert index.figures()[1]["training"]["loss"] == (MAX_INT, MAX_INT, MAX_INT)
        assert everything(index) == rebuilt(home)


def test_a_report_writes_little_into_a_long_series(home: Home) -> None:
    """Adding a report to a long series writes little to the disk, wherever its step is."""
    folder = new_trial(home)
    many = [report(steps, loss=0.5, accuracy=0.5) for steps in range(100_000)]
    large = [
        Report(1_750_000_000.0 + steps, "validation", steps, {"loss": 0.5}, [{"loss": 0.5}] * 1000)
        for steps in range(100)
    ]
    record(folder, *many, *large[:-1])
    with Index(home) as index:
        index.refresh()
        before = bytes_written()
        for steps in (100_000, 50_000):
            append(folder, 1, lines(report(steps, loss=0.4)))
            index.refresh()
        append(folder, 1, lines(large[-1]))
        index.refresh()

        assert bytes_written() - before < 400_000


def bytes_written() -> int:
    """Returns the number of bytes that this process has written to files."""
    return int(Path("/proc/self/io").read_text().split()[3])
