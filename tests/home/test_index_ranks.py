"""Besides the chief's journal, the index reads what other ranks keep: reports, progress, and their nodes' figures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

import pytest
from home.journals import START, age, append, everything, lines, new_trial, rebuilt, record, report, stored
from promises import promise

from core_sdk._ground.records import Dropped, Ended, Profile, ProgressReported, Record, Report, StatusSet
from core_sdk._home import Home
from core_sdk._home.history import read_history
from core_sdk._home.index import Index
from core_sdk._home.rows import RankRow, ReportRow


def cpu(at: float, utilization: float, **others: float) -> Profile:
    return Profile(time=START + at, group="cpu", metrics={"cpu_util_simple": utilization, **others})


def progress(value: float) -> ProgressReported:
    return ProgressReported(time=START, progress=value)


def test_figures_of_two_nodes_are_not_mixed_up(home: Home) -> None:
    """Profiler figures of two nodes are kept apart by rank, even at the same time."""
    folder = new_trial(home)
    record(folder, cpu(1, 10.0), cpu(3, 30.0))
    record(folder, cpu(1, 11.0, more=1.0), cpu(2, 21.0), rank=4)
    with Index(home) as index:
        index.refresh()

        rows = list(index.reports(1, "cpu"))

        assert [(row.time - START, row.rank, row.metrics) for row in rows] == [
            (1, 0, {"cpu_util_simple": 10.0}),
            (1, 4, {"cpu_util_simple": 11.0, "more": 1.0}),
            (2, 4, {"cpu_util_simple": 21.0}),
            (3, 0, {"cpu_util_simple": 30.0}),
        ]


def test_each_rank_has_its_progress_and_the_trial_the_chiefs(home: Home) -> None:
    """Each rank has its own progress, and the trial's is the chief's."""
    folder = new_trial(home)
    record(folder, progress(0.5))
    record(folder, progress(0.3), progress(0.4), rank=10)
    record(folder, cpu(1, 0.5), rank=2)
    with Index(home) as index:
        index.refresh()

        row = index.trial(1)

        assert row.progress == 0.5
        assert row.ranks == (RankRow(0, "node0", 0.5), RankRow(2, "node2", None), RankRow(10, "node10", 0.4))


def test_the_ranks_are_those_of_the_newest_attempt(home: Home) -> None:
    """Only the ranks of the newest attempt are listed, also when it has fewer than the one before."""
    folder = new_trial(home)
    record(folder, progress(0.5))
    record(folder, progress(0.4), rank=1)
    record(folder, progress(0.3), rank=2)
    with Index(home) as index:
        record(folder, attempt=2, resumed_steps=10)
        index.refresh()
        alone = index.trial(1)
        record(folder, progress(0.6), attempt=2, rank=1)
        index.refresh()

        assert (alone.ranks, alone.progress) == ((), 0.5)
        assert index.trial(1).ranks == (RankRow(0, "node0", None), RankRow(1, "node1", 0.6))


def test_only_the_chief_tells_how_the_attempt_goes(home: Home) -> None:
    """Records of a trial's course in another rank's journal are ignored."""
    folder = new_trial(home)
    record(folder, report(5, loss=0.5), stored("a", 5))
    record(folder, report(6, attempt=2, loss=0.4), attempt=2, resumed_steps=5)
    with Index(home) as index:
        index.refresh()
        before = everything(index).replace("ranks=()", "")
        strange: list[Record] = [
            StatusSet(time=START, status="odd"),
            Ended(time=START, outcome="completed"),
        ]

        record(folder, *strange, stored("b", 9), attempt=2, rank=1)
        index.refresh()

        ranks = index.trial(1).ranks
        assert everything(index).replace(f"ranks={ranks!r}", "") == before
        assert [rank.rank for rank in ranks] == [0, 1]


def test_what_befell_another_ranks_journal_is_counted_for_the_trial(home: Home) -> None:
    """Bad lines and dropped records of all ranks' journals are added up for the trial."""
    folder = new_trial(home)
    record(folder, Dropped(time=START, count=1, reason="full"))
    record(folder, progress(0.1), Dropped(time=START, count=2, reason="full"), rank=1)
    append(folder, 1, lines(progress(0.2)).replace(b"0.2", b"0.9") + lines(progress(0.3))[:-5], rank=1)
    with Index(home) as index:
        index.refresh()

        row = index.trial(1)

        assert (row.num_bad_lines, row.num_dropped) == (1, 3)
        assert row.ranks[1].progress == 0.1


def test_an_aged_folder_is_looked_into_when_another_ranks_journal_grows(home: Home) -> None:
    """An old folder is read again when another rank's journal grows, and only then."""
    folder = new_trial(home)
    record(folder)
    record(folder, progress(0.1), rank=1)
    age(folder)
    with Index(home) as index:
        index.refresh()
        idle = index.refresh()
        append(folder, 1, lines(progress(0.2), cpu(1, 0.5)), rank=1)

        result = index.refresh()

        assert (idle.num_trials, idle.num_points) == (0, 0)
        assert (result.num_trials, result.num_points) == (1, 1)
        assert index.trial(1).ranks[1].progress == 0.2


@pytest.mark.parametrize("remove", [os.unlink, lambda path: path.write_bytes(b"")])
def test_what_another_ranks_journal_lost_is_forgotten(home: Home, remove: Callable[..., object]) -> None:
    """If another rank's journal is deleted or emptied, only its records disappear from the index."""
    folder = new_trial(home)
    record(folder, cpu(1, 0.1), report(1, loss=0.5), progress(0.5))
    record(folder, cpu(1, 0.2), progress(0.4), rank=1)
    with Index(home) as index:
        index.refresh()
        remove(folder.journal_path(1, 1))
        age(folder)

        index.refresh()

        assert [row.metrics for row in index.reports(1, "cpu")] == [{"cpu_util_simple": 0.1}]
        assert [row.metrics for row in index.reports(1)] == [{"loss": 0.5}]
        assert everything(index) == rebuilt(home)


def test_a_deleted_trial_takes_all_its_journals_with_it(home: Home) -> None:
    """Deleting a trial removes the journals of all its ranks from the folder and the index."""
    folder = new_trial(home)
    record(folder, progress(0.5))
    record(folder, cpu(1, 0.2), rank=1)
    with Index(home) as index:
        index.refresh()
        folder.clear()

        index.refresh()

        assert list(folder.path.iterdir()) == []
        assert list(index.reports(1, "cpu")) == []
        assert index.trials() == []


@pytest.mark.parametrize(
    "name", ["1.rank2.journal", "9.rank1.journal", "1.rank0.journal", "²3.journal", "0.journal", "7.journal.bak"]
)
def test_only_the_chiefs_journal_makes_an_attempt(home: Home, name: str) -> None:
    """Only the chief's journal counts as an attempt."""
    folder = new_trial(home)
    record(folder)
    record(folder, attempt=3)

    (folder.path / name).write_bytes(b"")

    assert folder.attempts() == [1, 3]
    assert folder.other_journals() in ([], [(1, 2)], [(9, 1)])
    with Index(home) as index:
        index.refresh()
        assert index.trial(1).num_attempts == 2


def test_a_journal_whose_chiefs_is_missing_waits_for_it(home: Home) -> None:
    """Another rank's journal is ignored until the chief's journal is there."""
    folder = new_trial(home)
    record(folder, progress(0.4), rank=1)
    with Index(home) as index:
        index.refresh()
        before = index.trial(1)
        record(folder, progress(0.5))
        os.utime(folder.path, (time.time() - 500, time.time() - 500))

        index.refresh()

        assert (before.num_attempts, before.ranks) == (0, ())
        assert index.trial(1).ranks == (RankRow(0, "node0", 0.5), RankRow(1, "node1", 0.4))


def told(rows: Iterable[ReportRow]) -> list[tuple[object, ...]]:
    return [(row.rank, row.steps_completed, row.metrics) for row in rows]


def test_two_ranks_report_one_step_and_both_reports_are_kept(home: Home) -> None:
    """Both ranks' reports of one step are kept, and answers show rank 0 unless another is asked for."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5), report(2, loss=0.25))
    record(folder, report(1, loss=5.0), report(2, loss=2.5), rank=1)
    with Index(home) as index:
        index.refresh()

        shown, of_rank_1, of_all = (told(index.reports(1, rank=rank)) for rank in (None, 1, "all"))

        assert shown == [(0, 1, {"loss": 0.5}), (0, 2, {"loss": 0.25})] == told(index.reports(1, rank=0))
        assert of_rank_1 == [(1, 1, {"loss": 5.0}), (1, 2, {"loss": 2.5})]
        assert of_all == [shown[0], of_rank_1[0], shown[1], of_rank_1[1]]
        assert index.outline(1).reporting_ranks == [0, 1]
        assert index.figures()[1]["training"]["loss"] == (0.25, 0.25, 0.5)
        assert index.figures(rank=1)[1]["training"]["loss"] == (2.5, 2.5, 5.0)
        assert index.summary(1)["training"]["loss"]["count"] == 2
        assert [bucket.maximum for bucket in index.buckets(1, "training", "loss")] == [0.5, 0.25]
        assert [bucket.maximum for bucket in index.buckets(1, "training", "loss", rank=1)] == [5.0, 2.5]
        assert [(one.name, one.count) for one in index.series(1, rank=1)] == [("loss", 2)]


@promise("ranks-report")
def test_a_metric_that_rank_0_never_reports_is_seen_of_the_lowest_rank_that_does(home: Home) -> None:
    """If rank 0 never reports a metric, all answers show the lowest rank that does."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5), stored("a", 2))
    record(folder, report(2, "validation", accuracy=0.7), report(2, loss=7.0), rank=3)
    record(folder, report(2, "validation", accuracy=0.6), rank=1)
    with Index(home) as index:
        index.refresh()

        assert told(index.reports(1)) == [(0, 1, {"loss": 0.5}), (1, 2, {"accuracy": 0.6})]
        assert index.best_values(1, "validation", "accuracy", smaller_is_better=False) == {1: 0.6}
        assert index.metric_names(1) == {("training", "loss"), ("validation", "accuracy")}
        assert index.checkpoint("a").metrics == {"accuracy": 0.6}
        assert read_history(folder, with_validation=True).checkpoints[0].validation == {"accuracy": 0.6}
        assert index.trial(1).steps_completed == 2
        record(folder, report(2, "validation", attempt=2, accuracy=0.5), attempt=2, resumed_steps=1)
        index.refresh()
        assert told(index.reports(1, "validation")) == [(0, 2, {"accuracy": 0.5})]
        assert everything(index) == rebuilt(home)


def test_a_rank_is_seen_until_a_lower_one_reports_the_metric(home: Home) -> None:
    """A higher rank's metric is shown until a lower rank reports it, in whatever order they come."""
    folder = new_trial(home)
    record(folder)
    record(folder, report(1, loss=1.0), rank=1)
    with Index(home) as index:
        index.refresh()
        alone = told(index.reports(1))
        append(folder, 1, lines(report(1, loss=0.0)))

        index.refresh()

        assert alone == [(1, 1, {"loss": 1.0})]
        assert told(index.reports(1)) == [(0, 1, {"loss": 0.0})]


def test_a_resume_supersedes_the_reports_of_every_rank_alike(home: Home) -> None:
    """A resume supersedes all ranks' reports beyond its checkpoint; earlier repeats only their own rank's."""
    folder = new_trial(home)
    for rank in (0, 1):
        record(folder, *(report(step, loss=float(step)) for step in (1, 2, 3, 4)), rank=rank)
    record(folder, report(3, attempt=2, loss=30.0), attempt=2, resumed_steps=2)
    record(folder, report(2, attempt=2, loss=20.0), attempt=2, rank=1)
    with Index(home) as index:
        index.refresh()

        shown = {rank: told(index.reports(1, rank=rank)) for rank in (0, 1)}
        superseded = [row for row in index.reports(1, rank="all", superseded=True) if row.is_superseded]

        assert shown[0] == [(0, 1, {"loss": 1.0}), (0, 2, {"loss": 2.0}), (0, 3, {"loss": 30.0})]
        assert shown[1] == [(1, 1, {"loss": 1.0}), (1, 2, {"loss": 20.0})]
        assert [(row.rank, row.steps_completed) for row in superseded] == [(1, 2), (0, 3), (1, 3), (0, 4), (1, 4)]


def test_what_a_rank_reports_beside_metrics_is_kept_with_it(home: Home) -> None:
    """Batch metrics and JSON values of a group that several ranks report belong to its lowest rank."""
    folder = new_trial(home)
    record(folder, Report(START, "g", 1, {}, [{"x": 1}], {"text": "of 0"}))
    record(folder, Report(START, "g", 1, {"own": 2}, [{"x": 3}], {"text": "of 1"}), rank=1)
    with Index(home) as index:
        index.refresh()

        (of_0, shown_of_1), (of_1,) = list(index.reports(1)), list(index.reports(1, rank=1))

        assert (of_0.metrics, of_0.batch_metrics) == ({"text": "of 0"}, [{"x": 1}])
        assert (shown_of_1.rank, shown_of_1.metrics, shown_of_1.batch_metrics) == (1, {"own": 2}, None)
        assert (of_1.metrics, of_1.batch_metrics) == ({"own": 2, "text": "of 1"}, [{"x": 3}])
