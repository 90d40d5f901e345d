"""What the index answers: reports as they were, curves, summaries and checkpoints."""

from __future__ import annotations

import math
import struct
import tempfile
from pathlib import Path

import pytest
from home.journals import START, append, everything, lines, new_trial, rebuilt, record, report, stored
from hypothesis import example, given, settings
from hypothesis import strategies as st
from promises import promise
from saving import store_alone

from core_sdk._ground.records import (
    MAX_INT,
    CheckpointDeleted,
    Ended,
    MetadataSet,
    Metric,
    Profile,
    ProgressReported,
    Record,
    Report,
    Settled,
    StatusSet,
    number_to_json,
    to_json,
)
from core_sdk._home import Home
from core_sdk._home.attempts.ending import read_settled
from core_sdk._home.history import read_history
from core_sdk._home.index import Index
from core_sdk._home.rows import Figures, ReportRow
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import CheckpointNotFoundError, ExperimentNotFoundError, TrialNotFoundError

_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
_VALUES = st.floats() | st.integers(-MAX_INT, MAX_INT)


@settings(max_examples=100, deadline=None)
@given(group=_NAMES, metrics=st.dictionaries(_NAMES, _VALUES, max_size=5), time=st.floats(START, START + 1e7))
@example(group="'\";\0\n😀", metrics={"/../\0": 2**63, "a" * 1024: -(2**63), "": 1.0} | {"é" * 512: 5e-324}, time=START)
def test_names_values_and_times_come_back_exactly(group: str, metrics: dict[str, Metric], time: float) -> None:
    """Numbers keep their type and bits, and names every character."""
    metrics = {name: value for name, value in metrics.items() if name}
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory, "home"))
        spelled = {name: number_to_json(value) for name, value in metrics.items()}
        record(new_trial(home), Report(time, group, 7, dict(spelled), [dict(spelled), {}]))
        with Index(home) as index:
            index.refresh()

            (row,) = index.reports(1, group)

            assert (row.group, row.steps_completed, row.time) == (group, 7, time)
            assert exactly(row.metrics) == exactly(metrics)
            assert [exactly(batch) for batch in row.batch_metrics or []] == [exactly(metrics), []]
            assert {series.name for series in index.series(1)} == set(metrics)


def exactly(metrics: dict[str, Metric]) -> list[tuple[str, int | bytes]]:
    """Returns names and bits, with all NaN alike."""
    return [(name, bits(value)) for name, value in metrics.items()]


def bits(value: Metric) -> int | bytes:
    if isinstance(value, int):
        return value
    return b"NaN" if math.isnan(value) else struct.pack("d", value)


def told(rows: list[ReportRow]) -> list[tuple[int, int | None, dict[str, Metric]]]:
    return [(row.attempt, row.steps_completed, row.metrics) for row in rows]


def test_reports_come_by_steps_then_in_the_order_of_the_calls(home: Home) -> None:
    """Reports are sorted by step and then by the order of the calls, not by time."""
    record(
        new_trial(home),
        report(5, loss=0.5),
        report(2, loss=0.2),
        Report(START + 1000.5, "validation", 2, {"accuracy": 0.9}),
        Report(START + 1009, "training", 5, {"accuracy": 0.8}),
    )
    with Index(home) as index:
        index.refresh()

        assert told(list(index.reports(1))) == [
            (1, 2, {"loss": 0.2}),
            (1, 2, {"accuracy": 0.9}),
            (1, 5, {"loss": 0.5}),
            (1, 5, {"accuracy": 0.8}),
        ]
        assert told(list(index.reports(1, "validation"))) == [(1, 2, {"accuracy": 0.9})]


def test_a_report_without_metrics_and_one_with_batches_come_back(home: Home) -> None:
    """Reports without metrics and batch metrics are read back, and batches are not a series."""
    record(
        new_trial(home),
        report(1),
        Report(START, "training", 2, {"loss": 0.5}, [{"loss": 0.6}, {"loss": "NaN"}]),
        Report(START, "training", 3, {"loss": 0.4}, []),
    )
    with Index(home) as index:
        index.refresh()

        rows = list(index.reports(1))

        assert [(row.metrics, repr(row.batch_metrics)) for row in rows] == [
            ({}, "None"),
            ({"loss": 0.5}, "[{'loss': 0.6}, {'loss': nan}]"),
            ({"loss": 0.4}, "[]"),
        ]
        assert [row.name for row in index.series(1)] == ["loss"]


def test_reports_of_one_group_may_differ_in_their_metrics(home: Home) -> None:
    """Reports of one group may have different metrics, in the order in which the group first had them."""
    record(
        new_trial(home),
        report(1, loss=0.1, rate="NaN"),
        report(2, loss=2**63, extra="-Infinity", rate=1),
        report(3, rate=2),
        Report(START + 1001.5, "training", 3, {"loss": 0.3}, json_metrics={"text": "x"}),
    )
    with Index(home) as index:
        index.refresh()

        rows = [(row.steps_completed, repr(row.metrics)) for row in index.reports(1)]

        assert rows == [
            (1, "{'loss': 0.1, 'rate': nan}"),
            (2, f"{{'loss': {2**63}, 'rate': 1, 'extra': -inf}}"),
            (3, "{'rate': 2}"),
            (3, "{'loss': 0.3, 'text': 'x'}"),
        ]


def test_a_report_of_which_a_metric_is_superseded_comes_in_two(home: Home) -> None:
    """A report of which one metric is superseded is split into the valid and the superseded part."""
    folder = new_trial(home)
    record(folder, *[report(steps, loss=float(steps), rate=1) for steps in (1, 2)])
    record(folder, report(2, attempt=2, loss=0.5), attempt=2, resumed_steps=2)
    with Index(home) as index:
        index.refresh()

        shown = told(list(index.reports(1)))
        everything = [(row.attempt, row.metrics, row.is_superseded) for row in index.reports(1, superseded=True)]

        assert shown == [(1, 1, {"loss": 1.0, "rate": 1}), (1, 2, {"rate": 1}), (2, 2, {"loss": 0.5})]
        assert everything == [
            (1, {"loss": 1.0, "rate": 1}, False),
            (1, {"rate": 1}, False),
            (1, {"loss": 2.0}, True),
            (2, {"loss": 0.5}, False),
        ]


def test_many_reports_are_read_in_pages_without_loss(home: Home) -> None:
    """Reports that need several pages are read without loss, in the order of the steps."""
    many = [report(steps, loss=0.5, accuracy=0.5) for steps in range(60_000)]
    few = [report(steps, "validation", accuracy=0.9) for steps in range(0, 60_000, 7_000)]
    record(new_trial(home), *many, *few)
    with Index(home) as index:
        index.refresh()

        steps = [(row.steps_completed, row.group, len(row.metrics)) for row in index.reports(1)]

        expected = [(row.steps_completed, row.group, len(row.metrics)) for row in (*many, *few)]
        assert sorted(steps) == sorted(expected)
        assert [step for step, _, _ in steps] == sorted(row.steps_completed for row in (*many, *few))


@promise("reports-superseded")
def test_what_lies_beyond_the_checkpoint_of_a_resume_is_superseded(home: Home) -> None:
    """Hidden by default, kept and flagged when asked for; also before the new attempt reports."""
    folder = new_trial(home)
    record(folder, *(report(steps, loss=steps / 10) for steps in (10, 20, 30)), stored("a", 20), stored("b", 30))
    record(folder, attempt=2, resumed_steps=20)
    with Index(home) as index:
        index.refresh()

        assert [row.steps_completed for row in index.reports(1)] == [10, 20]
        flags = [(row.steps_completed, row.is_superseded) for row in index.reports(1, superseded=True)]
        assert flags == [(10, False), (20, False), (30, True)]
        assert index.trial(1).steps_completed == 20
        assert [(row.count, row.last_steps) for row in index.series(1)] == [(2, 20)]
        assert index.summary(1)["training"]["loss"]["max"] == 2.0
        assert [bucket.last_steps for bucket in index.buckets(1, "training", "loss")] == [10, 20]
        assert [row.storage_id for row in index.checkpoints(trial_id=1)] == ["b", "a"]
        assert index.trial(1).latest_checkpoint == "a"


@promise("reports-superseded")
def test_what_a_later_attempt_reports_again_is_superseded_metric_by_metric_and_step_by_step(home: Home) -> None:
    """Only the metrics and steps that a later attempt reports again are superseded."""
    folder = new_trial(home)
    record(folder, *(report(steps, loss=1.0, accuracy=0.5) for steps in (10, 20)))
    repeated = [report(steps, attempt=2, loss=0.0) for steps in (15, 20, 25)]
    with Index(home) as index:
        for count in range(1, 4):
            folder.journal_path(2).unlink(missing_ok=True)
            record(folder, *repeated[:count], attempt=2, resumed_steps=20)
            index.refresh()

        assert told(list(index.reports(1))) == [
            (1, 10, {"loss": 1.0, "accuracy": 0.5}),
            (2, 15, {"loss": 0.0}),
            (1, 20, {"accuracy": 0.5}),
            (2, 20, {"loss": 0.0}),
            (2, 25, {"loss": 0.0}),
        ]
        hidden = [row for row in index.reports(1, superseded=True) if row.is_superseded]
        assert told(hidden) == [(1, 20, {"loss": 1.0})]
        assert everything(index) == rebuilt(home)


def test_steps_between_those_that_a_later_attempt_reports_again_stay(home: Home) -> None:
    """Steps that a later attempt does not report again stay valid in reports, curves and figures."""
    folder = new_trial(home)
    record(folder, *(report(steps, "validation", loss=float(steps), own=1) for steps in range(20)))
    with Index(home) as index:
        index.refresh()
        record(folder, attempt=2, resumed_steps=20)
        for steps in (5, 10, 15):
            append(folder, 2, lines(report(steps, "validation", attempt=2, loss=-1.0)))
            index.refresh()
        record(folder, report(10, "validation", attempt=3, loss=-7.0), attempt=3, resumed_steps=20)
        index.refresh()

        losses = {row.steps_completed: row.metrics["loss"] for row in index.reports(1) if "loss" in row.metrics}
        assert losses == {steps: float(steps) for steps in range(20)} | {5: -1.0, 10: -7.0, 15: -1.0}
        assert sum(row.metrics.get("own", 0) for row in index.reports(1)) == 20
        assert index.summary(1)["validation"]["loss"] == {"count": 20, "last": 19, "min": -7, "max": 19, "mean": 7.55}
        (curve,) = index.buckets(1, "validation", "loss", 1, superseded_of=1)
        assert (curve.first_steps, curve.last_steps, curve.count) == (5, 15, 3)
        assert everything(index) == rebuilt(home)


@promise("reports-superseded")
def test_of_two_reports_of_a_step_in_one_attempt_the_later_counts(home: Home) -> None:
    """Of two reports of a step in one attempt the later one counts, for each metric and rank."""
    folder = new_trial(home)
    written: list[Record] = [
        report(10, "validation", loss=9.0, accuracy=0.5),
        stored("a", 10),
        report(20, "validation", loss=2.0),
        report(10, "validation", loss=1.0),
        report(20, "validation", accuracy=0.25),
        report(5, "validation", loss=7.0),
    ]
    record(folder)
    record(folder, report(10, "validation", loss=8.0), rank=1)
    with Index(home) as index:
        for one in written:
            append(folder, 1, lines(one))
            index.refresh()

        assert told(list(index.reports(1))) == [
            (1, 5, {"loss": 7.0}),
            (1, 10, {"accuracy": 0.5}),
            (1, 10, {"loss": 1.0}),
            (1, 20, {"loss": 2.0}),
            (1, 20, {"accuracy": 0.25}),
        ]
        hidden = [row for row in index.reports(1, superseded=True) if row.is_superseded]
        assert told(hidden) == [(1, 10, {"loss": 9.0})]
        assert told(list(index.reports(1, rank=1))) == [(1, 10, {"loss": 8.0})]
        assert index.summary(1)["validation"]["loss"] == {"count": 3, "last": 2, "min": 1, "max": 7, "mean": 10 / 3}
        assert index.figures()[1]["validation"]["loss"] == (2.0, 1.0, 7.0)
        assert [bucket.minimum for bucket in index.buckets(1, "validation", "loss")] == [7.0, 1.0, 2.0]
        assert index.best_values(1, "validation", "loss", smaller_is_better=False) == {1: 7.0}
        assert index.checkpoint("a").metrics == {"accuracy": 0.5, "loss": 1.0}
        assert read_history(folder, with_validation=True).checkpoints[0].validation == {"accuracy": 0.5, "loss": 1.0}
        assert everything(index) == rebuilt(home)
        record(folder, report(10, "validation", attempt=2, loss=0.5), attempt=2, resumed_steps=10)
        index.refresh()
        assert index.figures()[1]["validation"]["loss"] == (0.5, 0.5, 7.0)
        assert everything(index) == rebuilt(home)


def test_what_a_report_holds_beside_numbers_is_repeated_with_a_metric_of_it(home: Home) -> None:
    """Batches and texts of a report are superseded only with a metric of the same report."""
    folder = new_trial(home)
    with Index(home) as index:
        record(folder)
        for loss, text in ((1.0, "first"), (2.0, "second")):
            append(folder, 1, lines(Report(START, "g", 5, {"loss": loss}, [{"loss": loss}])))
            append(folder, 1, lines(Report(START, "g", 5, {"rate": 0.5}, [{"loss": 0.0}]))) if loss == 1.0 else None
            append(folder, 1, lines(Report(START, "g", 5, {}, None, {"text": text})))
            append(folder, 1, lines(Report(START, "g", 5, {}, None, {"other": 1})) if loss == 1.0 else b"")
            index.refresh()

        assert [(row.metrics, row.batch_metrics) for row in index.reports(1)] == [
            ({"rate": 0.5}, [{"loss": 0.0}]),
            ({"other": 1}, None),
            ({"loss": 2.0}, [{"loss": 2.0}]),
            ({"text": "second"}, None),
        ]
        hidden = [row for row in index.reports(1, superseded=True) if row.is_superseded]
        assert [(row.metrics, row.batch_metrics) for row in hidden] == [
            ({"loss": 1.0}, [{"loss": 1.0}]),
            ({"text": "first"}, None),
        ]
        assert everything(index) == rebuilt(home)


def test_a_resume_of_a_resume_supersedes_both(home: Home) -> None:
    """A resume further back supersedes the reports of all earlier attempts beyond it."""
    folder = new_trial(home)
    record(folder, *(report(steps, loss=1.0) for steps in (10, 20, 30)))
    record(folder, *(report(steps, attempt=2, loss=2.0) for steps in (30, 40)), attempt=2, resumed_steps=20)
    record(folder, report(20, attempt=3, loss=3.0), attempt=3, resumed_steps=10)
    with Index(home) as index:
        index.refresh()

        assert told(list(index.reports(1))) == [(1, 10, {"loss": 1.0}), (3, 20, {"loss": 3.0})]


def test_buckets_hold_the_true_minimum_and_maximum(home: Home) -> None:
    """Buckets have the exact extremes and means, over two attempts and with NaN left out."""
    folder = new_trial(home)
    values: dict[int, float | str] = {steps: math.sin(steps * 1.7) for steps in range(3000)}
    values.update({500: 77.0, 501: "NaN", 2999: "-Infinity"})
    record(folder, *(report(steps, loss=value) for steps, value in values.items() if steps < 1500))
    later = (report(steps, attempt=2, loss=value) for steps, value in values.items() if steps >= 1400)
    record(folder, *later, attempt=2, resumed_steps=1399)
    with Index(home) as index:
        index.refresh()

        buckets = index.buckets(1, "training", "loss", 40)

        assert len(buckets) == 40
        assert [bucket.first_steps for bucket in buckets] == list(range(0, 3000, 75))
        assert sum(bucket.count for bucket in buckets) == 3000
        for bucket in buckets:
            numbers = [float(values[steps]) for steps in range(int(bucket.first_steps), int(bucket.last_steps) + 1)]
            finite = [number for number in numbers if not math.isnan(number)]
            assert (bucket.minimum, bucket.maximum) == (min(finite), max(finite))
            assert bucket.mean == pytest.approx(sum(finite) / len(finite))


def test_a_short_series_has_a_bucket_for_each_point(home: Home) -> None:
    """Stretches without points are left out; where all is NaN there is no minimum."""
    record(new_trial(home), report(0, loss=3), report(1_000_000, loss="NaN"))
    with Index(home) as index:
        index.refresh()

        first, last = index.buckets(1, "training", "loss", 2000)

        assert (first.first_steps, first.minimum, first.maximum, first.mean) == (0, 3, 3, 3.0)
        assert (last.first_steps, last.minimum, last.mean) == (1_000_000, None, None)
        assert index.buckets(1, "training", "no such metric") == []


def test_the_int_2_to_the_63_is_compared_as_a_number(home: Home) -> None:
    """The int 2**63, which SQLite cannot store, is compared as a number."""
    record(new_trial(home), report(1, "validation", big=2**63), report(2, "validation", big=1e300))
    with Index(home) as index:
        index.refresh()

        (bucket,) = index.buckets(1, "validation", "big", 1)

        assert (bucket.minimum, bucket.maximum) == (2**63, 1e300)
        assert index.best_values(1, "validation", "big", smaller_is_better=True) == {1: 2**63}


def test_the_figures_of_a_metric_are_of_the_points_that_count(home: Home) -> None:
    """Figures cover valid points only, also if earlier indexed points are superseded later."""
    folder = new_trial(home)
    record(folder, report(1, loss="NaN", depth="NaN"), report(2, loss=2**63 - 1), report(3, loss=-7, depth="NaN"))
    with Index(home) as index:
        index.refresh()
        before = index.figures()[1]["training"]
        record(folder, report(4, attempt=2, loss=2.5), attempt=2, resumed_steps=2)
        index.refresh()
        after = index.figures()[1]["training"]
        append(folder, 2, lines(report(5, attempt=2, loss=2**63)))
        index.refresh()

        assert before["loss"] == Figures(last=-7, minimum=-7, maximum=2**63 - 1)
        assert before["depth"][1:] == (None, None)
        assert after["loss"] == Figures(last=2.5, minimum=2.5, maximum=2**63 - 1)
        assert index.figures([1])[1]["training"]["loss"] == Figures(last=2**63, minimum=2.5, maximum=2.0**63)


def test_the_summary_of_a_trial(home: Home) -> None:
    """A trial's summary has each metric's last value by step, and its minimum, maximum and mean without NaN."""
    record(
        new_trial(home),
        report(3, loss=1.0, epoch=3),
        report(1, loss=4.0, epoch=1),
        report(2, loss="NaN", epoch=2),
        report(3, "validation", accuracy="NaN"),
    )
    with Index(home) as index:
        index.refresh()

        summary = index.summary(1)

        assert summary["training"] == {
            "loss": {"count": 3, "last": 1.0, "min": 1.0, "max": 4.0, "mean": 2.5},
            "epoch": {"count": 3, "last": 3, "min": 1, "max": 3, "mean": 2.0},
        }
        accuracy = summary["validation"]["accuracy"]
        assert (accuracy["count"], repr(accuracy["last"]), accuracy["min"], accuracy["mean"]) == (1, "nan", None, None)


def test_the_best_validations_of_an_experiment(home: Home) -> None:
    """The best validations cover valid reports of the experiment's trials and ignore NaN."""
    first, second, other = new_trial(home), new_trial(home), new_trial(home, experiment="other")
    record(first, report(1, "validation", loss=0.3), report(2, "validation", loss=0.1), report(3, "training", loss=0))
    record(first, attempt=2, resumed_steps=1)
    record(second, report(1, "validation", loss="NaN", accuracy=0.9), report(2, "validation", loss=0.7))
    record(other, report(1, "validation", loss=0.05))
    with Index(home) as index:
        index.refresh()

        assert index.best_values(1, "validation", "loss", smaller_is_better=True) == {1: 0.3, 2: 0.7}
        assert index.best_values(1, "validation", "accuracy", smaller_is_better=False) == {2: 0.9}
        assert index.best_values(1, "validation", "no such metric", smaller_is_better=True) == {}
        assert index.metric_names(1) == {("validation", "loss"), ("validation", "accuracy")}


def test_the_figures_of_the_profiler_belong_to_times(home: Home) -> None:
    """Profiler figures are read by group and time, are never superseded and are no series."""
    folder = new_trial(home)
    profiles = [Profile(time=START + seconds, group="cpu", metrics={"cpu_util": 0.5}) for seconds in (2, 1)]
    record(folder, *profiles, report(30, loss=0.5))
    record(folder, attempt=2)
    with Index(home) as index:
        index.refresh()

        rows = list(index.reports(1, "cpu"))

        assert [(row.steps_completed, row.time, row.metrics) for row in rows] == [
            (None, START + 1, {"cpu_util": 0.5}),
            (None, START + 2, {"cpu_util": 0.5}),
        ]
        assert list(index.reports(1)) == []
        assert index.series(1) == []
        assert index.summary(1) == {}


def test_a_trial_says_what_was_last_said_of_it(home: Home) -> None:
    """A trial shows the newest status, progress and metadata of any attempt."""
    folder = new_trial(home, lr=0.1)
    record(
        folder,
        ProgressReported(time=START, progress=0.2),
        ProgressReported(time=START, progress=0.4),
        StatusSet(time=START, status="a"),
        MetadataSet(time=START, metadata=to_json({"best": math.inf}, "metadata")),
    )
    record(folder, StatusSet(time=START, status="b"), attempt=2)
    with Index(home) as index:
        index.refresh()

        row = index.trial(1)

        assert (row.hparams, row.progress, row.status, row.metadata) == ({"lr": 0.1}, 0.4, "b", {"best": math.inf})
        assert (row.num_attempts, row.experiment_name) == (2, "digits")


def test_a_deleted_checkpoint_stays_listed_as_deleted(home: Home) -> None:
    """A checkpoint is listed as deleted if any journal says so or if its files are gone."""
    storage = DirectoryStorage(Home.create(home.root).checkpoints)
    with storage.stage("kept") as staging:
        store_alone(staging, {})
    first, second = new_trial(home), new_trial(home)
    record(first, *(stored(name, 1, storage.url) for name in ("kept", "gone")), stored("a", 1), stored("b", 1))
    append(first, 0, lines(CheckpointDeleted(time=START, storage_id="a")))
    record(second, CheckpointDeleted(time=START, storage_id="b"))
    with Index(home) as index:
        index.refresh()

        states = {row.storage_id: row.state for row in index.checkpoints()}

        assert states == {"kept": "COMPLETED", "gone": "DELETED", "a": "DELETED", "b": "DELETED"}
        assert index.trial(1).latest_checkpoint == "kept"


def test_what_does_not_exist_is_an_error_that_names_it(home: Home) -> None:
    """An unknown object raises an error that names it and the home."""
    new_trial(home)
    with Index(home) as index:
        index.refresh()

        with pytest.raises(TrialNotFoundError, match=f"no trial 99 in {home.root}"):
            index.trial(99)
        with pytest.raises(ExperimentNotFoundError, match="'no such'"):
            index.experiment("no such")
        with pytest.raises(ExperimentNotFoundError, match="99"):
            index.experiment(99)
        with pytest.raises(CheckpointNotFoundError, match="'no such'"):
            index.checkpoint("no such")


def test_checkpoints_are_listed_by_trial_and_then_by_their_saves(home: Home) -> None:
    """Checkpoints are sorted by trial and by the order of saves, not by time."""
    for number in (1, 2):
        folder = new_trial(home)
        record(folder, stored(f"a{number}", 1, time=START - number), stored(f"b{number}", 2, time=START - 10 * number))
        record(folder, stored(f"c{number}", 1, time=START - 100), attempt=2)

    with Index(home) as index:
        index.refresh()

        assert [row.storage_id for row in index.checkpoints()] == ["c2", "b2", "a2", "c1", "b1", "a1"]
        row = index.checkpoint("b2")
        assert (row.trial_id, row.experiment_id, row.steps_completed, row.size_bytes) == (2, 1, 2, 7)


def test_what_was_settled_counts_until_a_later_attempt_begins(home: Home) -> None:
    """A settled state overrides the attempt's own, until a later attempt begins."""
    folder = new_trial(home)
    record(folder, Ended(time=START, outcome="paused"))
    told = [
        Settled(time=START, state="CANCELED", reason="a slip", attempt=1),
        Settled(time=START, state="COMPLETED", reason="stopped by the searcher", attempt=1),
    ]
    append(folder, 0, lines(*told))

    with Index(home) as index:
        index.refresh()
        row, experiment = index.trial(1), index.experiment(1)
        settled = read_settled(folder)
        record(folder, Ended(time=START, outcome="paused"), attempt=2)
        index.refresh()
        later = index.trial(1)

    assert (row.state, row.reason, experiment.state) == ("COMPLETED", "stopped by the searcher", "COMPLETED")
    assert settled == told[-1]
    assert (later.state, read_settled(folder)) == ("PAUSED", None)


def test_bins_are_the_same_stretches_of_steps_in_every_series(home: Home) -> None:
    """Bins cover the same steps in every series and leave out superseded and non-finite values."""
    folder, other = new_trial(home), new_trial(home)
    first = [report(step, loss=float(step)) for step in range(1, 9)]
    record(folder, *first, report(9, loss="NaN"), report(90, loss=7.0))
    record(folder, report(9, loss="Infinity"), report(10, loss=1.0), attempt=2, resumed_steps=8)
    record(other, report(-3, loss=2), report(9, loss=MAX_INT))

    with Index(home) as index:
        index.refresh()
        bins, of_other = index.bins(1, "training", "loss", 4), index.bins(2, "training", "loss", 4)
        part = index.bins(1, "training", "loss", 4, within=(4, 8))

        assert [list(column) for column in bins[1:]] == [
            [0, 1, 2], [1, 4, 8], [3, 7, 10], [3, 4, 3], [3, 4, 2], [1, 4, 1], [3, 7, 8], [2, 5.5, 4.5],
        ]  # fmt: skip
        assert (list(part.numbers), list(part.counts)) == ([1, 2], [4, 1])
        assert (list(of_other.numbers), list(of_other.maxima)) == ([-1, 2], [2, float(MAX_INT)])
        assert index.step_range([1, 2], "training", "loss") == (-3, 10)
        assert index.step_range([1], "validation", "loss") is None
        assert list(index.bins(1, "training", "accuracy", 4).numbers) == []
