"""What was reported is read back, exactly and in order."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from client.trainings import START, Train

from core_sdk._ground.records import Profile, Report
from core_sdk._home.rows import ReportRow
from core_sdk.client import Tracker
from core_sdk.client._metrics import frame
from core_sdk.errors import TrialNotFoundError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_reports_are_read_in_order(tracker: Tracker, train: Train) -> None:
    """Reports come in order with their trial, attempt, step and group."""
    training = train()
    training.report(10, loss=0.5)
    training.report(10, "validation", accuracy=0.8)
    training.report(20, loss=0.25)

    reports = list(tracker.get_trial(1).iter_metrics())

    assert [(read.group, read.steps_completed, read.metrics) for read in reports] == [
        ("training", 10, {"loss": 0.5}),
        ("validation", 10, {"accuracy": 0.8}),
        ("training", 20, {"loss": 0.25}),
    ]
    assert (reports[0].trial_id, reports[0].trial_run_id, reports[0].total_batches) == (1, 1, 10)


def test_the_time_of_a_report_is_aware(tracker: Tracker, train: Train) -> None:
    """The time of a report is the training machine's time in UTC, to the microsecond."""
    training = train()
    training.append(Report(NOON.timestamp() + 0.123456, "training", 1, {"loss": 0.5}))

    (read,) = tracker.get_trial(1).iter_metrics()

    assert read.end_time == NOON.replace(microsecond=123456)
    assert read.end_time.utcoffset() is not None


def test_a_group_is_read_alone(tracker: Tracker, train: Train) -> None:
    """Reading one group leaves out the others."""
    training = train()
    training.report(10, loss=0.5)
    training.report(10, "validation", accuracy=0.8)

    reports = list(tracker.get_trial(1).iter_metrics("validation"))

    assert [read.metrics for read in reports] == [{"accuracy": 0.8}]


def test_every_number_comes_back_as_it_was(tracker: Tracker, train: Train) -> None:
    """NaN, infinities, -0.0 and large ints are read back with their type."""
    train().report(1, nan="NaN", inf="Infinity", minus="-Infinity", zero=-0.0, large=2**63, one=1, tiny=5e-324)

    (read,) = tracker.get_trial(1).iter_metrics()

    assert math.isnan(read.metrics.pop("nan"))
    assert {name: repr(value) for name, value in read.metrics.items()} == {
        "inf": "inf",
        "minus": "-inf",
        "zero": "-0.0",
        "large": str(2**63),
        "one": "1",
        "tiny": "5e-324",
    }


def test_batch_metrics_are_kept(tracker: Tracker, train: Train) -> None:
    """Batch metrics are read back as they were reported."""
    train().append(Report(1.0, "training", 2, {"loss": 0.75}, [{"loss": 1.0}, {"loss": 0.5}]))

    (read,) = tracker.get_trial(1).iter_metrics()

    assert read.batch_metrics == [{"loss": 1.0}, {"loss": 0.5}]


def test_superseded_reports_are_read_on_request(tracker: Tracker, train: Train) -> None:
    """The second attempt went back to step 10: the first one's step 20 is hidden, and marked when shown."""
    first = train()
    first.report(10, loss=3.0)
    first.report(20, loss=2.0)
    first.die()
    train(folder=first.folder, resumed_steps=10).report(20, loss=1.0)
    trial = tracker.get_trial(1)

    shown = list(trial.iter_metrics("training"))
    everything = list(trial.iter_metrics("training", superseded=True))

    assert [(read.trial_run_id, read.metrics["loss"]) for read in shown] == [(1, 3.0), (2, 1.0)]
    assert {(read.metrics["loss"], read.is_superseded) for read in everything} == {
        (3.0, False),
        (2.0, True),
        (1.0, False),
    }


def test_the_profilers_groups_are_read_by_name(tracker: Tracker, train: Train) -> None:
    """Profiler groups are read by name, have no steps and are not among the other reports."""
    training = train()
    training.report(10, loss=0.5)
    training.append(Profile(time=NOON.timestamp(), group="cpu", metrics={"load": 0.9}))
    trial = tracker.get_trial(1)

    (profiled,) = trial.iter_metrics("cpu")
    others = list(trial.iter_metrics())

    assert (profiled.steps_completed, profiled.end_time, profiled.metrics) == (None, NOON, {"load": 0.9})
    assert [read.group for read in others] == ["training"]


def test_a_half_read_iterator_stops_nobody(tracker: Tracker, train: Train) -> None:
    """An iterator that is only half read does not block indexing or other queries."""
    training = train()
    for step in range(2000):
        training.report(step, loss=0.5)
    half_read = tracker.get_trial(1).iter_metrics()
    next(half_read)
    training.report(2000, loss=0.25)

    steps_completed = tracker.get_trial(1).steps_completed

    assert steps_completed == 2000
    assert len(list(half_read)) >= 1999


def test_metrics_of_several_trials_come_one_trial_after_the_other(tracker: Tracker, train: Train) -> None:
    """Metrics of several trials come in the order of the given ids."""
    train().report(10, loss=1.0)
    train().report(10, loss=2.0)

    reports = list(tracker.iter_trials_metrics([2, 1], "training"))

    assert [(read.trial_id, read.metrics["loss"]) for read in reports] == [(2, 2.0), (1, 1.0)]


def test_an_unknown_trial_is_refused_before_anything_is_read(tracker: Tracker, train: Train) -> None:
    """An unknown trial is refused at the call, not while its result is iterated."""
    train().report(10, loss=1.0)

    with pytest.raises(TrialNotFoundError, match="there is no trial 7"):
        tracker.iter_trials_metrics([1, 7], "training")


def test_the_summary_of_a_metric(tracker: Tracker, train: Train) -> None:
    """The summary has count, last, max, min and mean by group and metric."""
    training = train()
    for steps, loss in ((10, 3.0), (20, 1.0), (30, 2.0)):
        training.report(steps, loss=loss)
    training.report(30, "validation", accuracy=0.5)

    summary = tracker.get_trial(1).summary_metrics

    assert summary.keys() == {"training", "validation"}
    assert summary["training"]["loss"] == {"count": 3, "last": 2.0, "max": 3.0, "min": 1.0, "mean": 2.0}


def test_a_frame_goes_into_pandas_as_it_is(tracker: Tracker, train: Train) -> None:
    """A frame has one row per report and one column per metric, and pandas accepts it."""
    import pandas as pd

    training = train()
    training.report(10, loss=0.5, lr=1)
    training.report(10, "validation", accuracy=0.8)
    training.report(20, loss=0.25, lr=2)

    read = pd.DataFrame(tracker.get_trial(1).metrics_frame())

    assert list(read.columns) == [
        "trial_id",
        "attempt",
        "rank",
        "group",
        "steps_completed",
        "time",
        "loss",
        "lr",
        "accuracy",
    ]
    assert read["steps_completed"].tolist() == [10, 10, 20]
    assert str(read["time"].dt.tz) == "UTC"
    assert read["loss"].dtype == "float64"
    assert read[read.group == "training"]["loss"].tolist() == [0.5, 0.25]
    assert read["accuracy"].isna().tolist() == [True, False, True]


def test_a_frame_keeps_what_is_absent_apart_from_what_is_not_a_number(tracker: Tracker, train: Train) -> None:
    """In a frame, None means that a metric was not reported, and NaN that NaN was reported."""
    training = train()
    training.report(1, a="NaN")
    training.report(2, b=1)

    columns = tracker.get_trial(1).metrics_frame("training")

    assert math.isnan(columns["a"][0])
    assert columns["a"][1] is None
    assert columns["b"] == [None, 1]


def test_a_frame_has_the_reports_of_all_groups_and_attempts(tracker: Tracker, train: Train) -> None:
    """A frame has all reports in order, even if their metrics differ."""
    first = train()
    for step in range(2500):
        metrics: dict[str, int | float | str] = {"loss": step / 7}
        if step % 10 == 0:
            metrics["rate"] = 1
        first.append(Report(START + step, "training", step, metrics))
    first.report(2000, "validation", accuracy=0.5)
    first.die()
    second = train(folder=first.folder, resumed_steps=1500)
    for step in range(1501, 2600):
        second.report(step, late=step, loss="NaN" if step % 100 == 0 else step / 9)
    trial = tracker.get_trial(1)

    columns = trial.metrics_frame()

    reports = list(trial.iter_metrics())
    assert list(columns)[6:] == ["loss", "rate", "late"]
    for name, values in {
        "attempt": [read.trial_run_id for read in reports],
        "group": [read.group for read in reports],
        "steps_completed": [read.steps_completed for read in reports],
        "time": [read.end_time for read in reports],
        **{name: [read.metrics.get(name) for read in reports] for name in ("loss", "rate", "late")},
    }.items():
        assert repr(columns[name]) == repr(values)
    assert columns["steps_completed"] == [*range(2600)]
    assert columns["attempt"] == [1] * 1501 + [2] * 1099


def test_no_metric_hides_a_column_of_the_frame() -> None:
    """A metric named like a column of the frame gets the prefix "metrics."."""
    metrics = {"time": 0.1, "metrics.time": 0.2, "metrics.loss": 0.3}
    row = ReportRow(1, 1, "training", 5, NOON.timestamp(), metrics)

    columns = frame([row])

    assert columns["time"] == [NOON]
    assert columns["metrics.time"] == [0.1]
    assert columns["metrics.metrics.time"] == [0.2]
    assert columns["metrics.loss"] == [0.3]


def test_a_frame_of_nothing_has_its_columns(tracker: Tracker, train: Train) -> None:
    """A frame without reports has its fixed columns."""
    train()

    columns = tracker.get_trial(1).metrics_frame()

    assert columns == {"trial_id": [], "attempt": [], "rank": [], "group": [], "steps_completed": [], "time": []}
