"""A report is kept exactly or refused at the call."""

from __future__ import annotations

import enum
import itertools
import math
import os
import struct
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from promises import promise

from core_sdk import core
from core_sdk._ground.records import Report, metrics_from_json
from core_sdk._home import Home
from core_sdk._home.journal import read_journal, read_records
from core_sdk.client import Tracker
from core_sdk.errors import DuplicateMetricError, InvalidMetricError, InvalidNameError, JournalError

STEPS = itertools.count(1)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@pytest.fixture
def context() -> Iterator[core.Context]:
    with core.init(name="reports") as context:
        yield context


def reports(home: Home) -> list[Report]:
    return [record for record in read_records(home.runs / "1" / "1.journal") if isinstance(record, Report)]


def last_metrics(home: Home) -> dict[str, Any]:
    return dict(metrics_from_json(reports(home)[-1].metrics))


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def test_the_three_calls_name_their_groups(context: core.Context, home: Home) -> None:
    """report_training_metrics() and report_validation_metrics() use the groups "training" and "validation"."""
    context.train.report_training_metrics(1, {"loss": 0.5})
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 0.6})
    context.train.report_metrics("test", 1, {"loss": 0.7})

    assert [(r.group, r.steps_completed, r.metrics) for r in reports(home)] == [
        ("training", 1, {"loss": 0.5}),
        ("validation", 1, {"loss": 0.6}),
        ("test", 1, {"loss": 0.7}),
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"step": 1, "metrics": {}}, "unexpected keyword argument 'step'; did you mean steps_completed?"),
        ({"steps_completed": 1, "metric": {}}, "unexpected keyword argument 'metric'; did you mean metrics?"),
        ({"steps_completed": 1, "loss": 0.5}, "unexpected keyword argument 'loss'; there are steps_completed, metrics"),
    ],
)
def test_the_end_of_the_context_says_which_argument_was_meant(arguments: dict[str, Any], says: str) -> None:
    """A report's own call checks no names of arguments, which would cost each report a tenth of its time."""
    with pytest.raises(TypeError) as raised, core.init() as context:
        context.train.report_validation_metrics(**arguments)

    assert says in str(raised.value)


@promise("reports-exact")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(value=st.floats(width=64) | st.integers(-(2**63), 2**63))
def test_every_number_comes_back_bit_for_bit(context: core.Context, home: Home, value: float | int) -> None:
    """Every float64, including NaN and -0.0, and every int up to 2**63 is read back unchanged."""
    step = next(STEPS)

    context.train.report_training_metrics(step, {"value": value})

    kept = last_metrics(home)["value"]
    assert type(kept) is type(value)
    assert bits(kept) == bits(value) if isinstance(value, float) else kept == value


# Of both signs, quiet and signalling, with and without a payload.
@promise("reports-exact")
@pytest.mark.parametrize("pattern", ["7ff8" + "0" * 12, "fff8" + "0" * 12, "7ff" + "0" * 12 + "1", "fffdeadbeefdead0"])
def test_every_nan_keeps_its_bits(context: core.Context, pattern: str) -> None:
    """NaN payloads are kept in metrics, batches and metadata, from the journal to the reader."""
    (nan,) = struct.unpack(">d", bytes.fromhex(pattern))
    context.train.report_training_metrics(1, {"loss": nan, "rate": 1.0}, [{"loss": nan}, {"loss": 0.5}])
    context.train.report_metrics("generic", 1, {"list": [nan], "nan": nan})
    context.train.set_metadata({"best": nan})

    trial = Tracker().get_trial(1)
    training, generic = trial.iter_metrics()

    assert training.batch_metrics is not None
    assert trial.metadata is not None
    read = [training.metrics["loss"], training.batch_metrics[0]["loss"], generic.metrics["list"][0]]
    read += [generic.metrics["nan"], trial.metadata["best"]]
    assert [bits(value) for value in read] == [bits(nan)] * 5
    assert training.metrics["rate"] == 1.0


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(group=NAMES, name=NAMES)
def test_every_name_comes_back(context: core.Context, home: Home, group: str, name: str) -> None:
    """Any UTF-8 name is kept as it is, and no name becomes a path."""
    step = next(STEPS)

    context.train.report_metrics(group, step, {name: 1.0})

    assert reports(home)[-1].group == group
    assert last_metrics(home) == {name: 1.0}
    # A file that is being written begins with a dot.
    assert {entry.name for entry in (home.runs / "1").iterdir() if not entry.name.startswith(".")} <= {
        "1.journal", "1.alive", "1.environment", "trial.json", "command.json",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["../../escape", "a/b", "\x00", "'; drop table point; --", "=1+1", "é", "e\u0301", "😀" * 256]
)
def test_hostile_names_are_only_names(context: core.Context, home: Home, name: str) -> None:
    """Hostile names are stored as plain text: nothing is executed, merged or written elsewhere."""
    context.train.report_metrics(name, 1, {name: 1.0})

    assert (reports(home)[-1].group, last_metrics(home)) == (name, {name: 1.0})


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (np.float64(0.1), 0.1),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), 1),
        (np.array(0.25), 0.25),
        (torch.tensor(0.25), 0.25),
        (torch.tensor(3), 3),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor(float("inf")), math.inf),
        (np.array([0.25]), 0.25),
        (torch.tensor([[0.5]], requires_grad=True), 0.5),
        (True, 1),
    ],
)
def test_scalars_of_numpy_and_torch_are_numbers(context: core.Context, home: Home, value: Any, kept: float) -> None:
    """Scalars of NumPy and PyTorch are accepted as numbers."""
    context.train.report_training_metrics(1, {"value": value})

    assert last_metrics(home) == {"value": kept}


@promise("bad-values-refused")
@pytest.mark.parametrize(
    "value",
    [
        "0.5",
        [0.5],
        {"a": 1.0},
        {1.0},
        1j,
        Decimal("0.5"),
        2**63 + 1,
        b"1",
        np.array([1.0, 2.0]),
        torch.ones(2),
        torch.ones(0),
        object(),
        np.ma.masked,
        np.ma.masked_array([1.0], mask=True),
        np.timedelta64(5, "s"),
        np.timedelta64(5, "ns"),
        np.datetime64("2026-01-01T00:00:00", "ns"),
        np.array(5, "m8[ns]"),
        np.longdouble("0.1"),
        np.complex128(1),
        torch.tensor(0.5, device="meta"),
        torch.tensor(1j),
    ],
)
def test_any_other_value_is_refused_by_name(context: core.Context, home: Home, value: Any) -> None:
    """The error names the bad key, and the rest of the report is not kept either."""
    with pytest.raises(InvalidMetricError, match="'bad'"):
        context.train.report_validation_metrics(1, {"good": 1.0, "bad": value})

    assert reports(home) == []
    context.train.report_validation_metrics(1, {"good": 1.0})


def test_a_metric_that_is_none_is_left_out_and_said_once(
    context: core.Context, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """A training or validation metric that is None is left out with one warning; other groups keep it."""
    context.train.report_training_metrics(1, {"loss": 0.5, "accuracy": None}, [{"loss": 0.5, "accuracy": None}])
    context.train.report_validation_metrics(1, {"accuracy": None})
    context.train.report_metrics("generic", 1, {"accuracy": None})

    training, validation, generic = reports(home)
    assert (training.metrics, training.batch_metrics) == ({"loss": 0.5}, [{"loss": 0.5}])
    assert (validation.metrics, validation.json_metrics) == ({}, None)
    assert generic.json_metrics == {"accuracy": None}
    assert [record.getMessage() for record in caplog.records] == [
        "metric 'accuracy' of group 'training' is None: metrics that are None are left out"
    ]


GENERIC = {
    "table": [["a", 1, 0.5], ["b", None, -0.0]],
    "nested": {"confusion": {"cat": [1, 2**63], "dog": []}, "deep": [[[{"x": [math.inf]}]]]},
    "text": "ünïcode \u2028 =1+1",
    "spelled": "NaN",
    "yes": True,
    "no": False,
    "none": None,
    "loss": 0.5,
}


@promise("reports-exact")
def test_generic_groups_keep_json_values_exactly(context: core.Context, home: Home) -> None:
    """Generic groups keep tables, texts and flags as JSON values."""
    context.train.report_metrics("generic", 1, GENERIC)
    context.train.report_metrics("generic", 2, {"tuple": (1, 2), "scalar": np.float32(0.5), "flag": np.True_})

    first, second = Tracker().get_trial(1).iter_metrics("generic")

    assert repr(sorted(first.metrics.items())) == repr(sorted(GENERIC.items()))
    assert second.metrics == {"tuple": [1, 2], "scalar": 0.5, "flag": 1}
    with pytest.raises(DuplicateMetricError, match="'text'"):
        context.train.report_metrics("generic", 1, {"text": "again"})


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@promise("bad-values-refused")
@pytest.mark.parametrize(
    "value", [{1: 2}, [{"a": {1, 2}}], ["\ud800"], "\ud800", [2**64], {"$float": 1}, [b""], [np.ma.masked], nested(101)]
)
def test_what_json_cannot_keep_is_refused_in_generic_groups_too(
    context: core.Context, home: Home, value: object
) -> None:
    """The error names the key, and nothing of the report is kept."""
    with pytest.raises(InvalidMetricError, match="'bad'"):
        context.train.report_metrics("generic", 1, {"good": 1.0, "bad": value})

    assert reports(home) == []


@pytest.mark.parametrize(
    "value", [np.ma.masked, np.timedelta64(5, "ns"), np.longdouble(1), torch.tensor(0.5, device="meta"), "\ud800"]
)
def test_metadata_that_json_cannot_keep_is_refused_by_name(context: core.Context, value: object) -> None:
    """Metadata that JSON cannot keep is refused by name and not replaced by another value."""
    with pytest.raises(TypeError, match=r"metadata\['bad'\]\[0\]"):
        context.train.set_metadata({"bad": [value]})

    assert context.train.get_metadata() is None


def test_texts_that_are_no_unicode_are_refused_by_name(context: core.Context) -> None:
    """A status, or an alert's title or description, with lone surrogates is refused by name."""
    with pytest.raises(TypeError, match="the status"):
        context.train.set_status("\ud800")
    with pytest.raises(TypeError, match="title"):
        context.alert("\ud800")
    with pytest.raises(TypeError, match="description"):
        context.alert("title", "\ud800")


@pytest.mark.parametrize("name", ["", "a" * 1025, "\ud800", "😀" * 257])
def test_a_name_that_cannot_be_kept_is_refused(context: core.Context, home: Home, name: str) -> None:
    """A name that is empty, longer than 1 KB or not Unicode is refused."""
    with pytest.raises(InvalidNameError):
        context.train.report_metrics(name, 1, {"loss": 1.0})
    with pytest.raises(InvalidNameError):
        context.train.report_training_metrics(1, {name: 1.0})

    assert reports(home) == []


@pytest.mark.parametrize("steps", [-1, 2**63])
def test_steps_out_of_range_are_refused(context: core.Context, steps: int) -> None:
    """A step below 0 or above 2**63 - 1 is refused."""
    with pytest.raises(ValueError, match="steps_completed"):
        context.train.report_training_metrics(steps, {"loss": 1.0})


@pytest.mark.parametrize("steps", [1.5, "1", None])
def test_steps_that_are_no_int_are_refused(context: core.Context, steps: Any) -> None:
    """A step that is a float, a string or None is refused."""
    with pytest.raises(TypeError, match="steps_completed"):
        context.train.report_training_metrics(steps, {"loss": 1.0})


def test_a_numpy_step_is_a_step(context: core.Context, home: Home) -> None:
    """Steps counted by numpy need no conversion."""
    context.train.report_training_metrics(np.int64(5), {"loss": 1.0})  # type: ignore[arg-type]

    assert reports(home)[-1].steps_completed == 5


def test_the_dict_is_copied_at_the_call(context: core.Context, home: Home) -> None:
    """Changes to the dict after the call do not change the report."""
    metrics = {"loss": 1.0}
    context.train.report_training_metrics(1, metrics)
    metrics["loss"] = 2.0

    assert last_metrics(home) == {"loss": 1.0}


def test_batch_metrics_travel_along(context: core.Context, home: Home) -> None:
    """Batch metrics are one dict per batch and are checked like the other metrics."""
    context.train.report_training_metrics(2, {"loss": 1.5}, batch_metrics=[{"loss": 1.0}, {"loss": math.nan}])

    assert reports(home)[-1].batch_metrics == [{"loss": 1.0}, {"loss": "NaN"}]
    with pytest.raises(InvalidMetricError, match="'loss'"):
        context.train.report_training_metrics(3, {"loss": 1.5}, batch_metrics=[{"loss": "x"}])


def test_a_metric_reported_twice_is_refused_by_name(context: core.Context, home: Home) -> None:
    """A repeated metric is refused; other names at the step, or the name in another group, are accepted."""
    context.train.report_training_metrics(1, {"loss": 1.0})
    context.train.report_training_metrics(1, {"accuracy": 1.0})
    context.train.report_validation_metrics(1, {"loss": 1.0})

    with pytest.raises(DuplicateMetricError, match=r"'accuracy' of group 'training'.*steps_completed=1"):
        context.train.report_training_metrics(1, {"accuracy": 1.0, "other": 2.0})

    assert len(reports(home)) == 3


@promise("reports-superseded")
def test_what_goes_back_in_steps_is_recorded_with_one_warning_and_the_later_counts(
    context: core.Context, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps that go back are recorded with one warning and replace earlier ones; repeating the newest is refused."""
    for step, loss in ((10, 1.0), (20, 2.0), (30, 3.0), (20, 4.0), (5, 5.0), (20, 6.0)):
        context.train.report_training_metrics(step, {"loss": loss})
    with pytest.raises(DuplicateMetricError, match=r"'loss' of group 'training'.*steps_completed=30"):
        context.train.report_training_metrics(30, {"loss": 7.0})

    counting, everything = (
        [
            (row.steps_completed, row.metrics["loss"])
            for row in Tracker().get_trial(1).iter_metrics(superseded=superseded)
        ]
        for superseded in (False, True)
    )

    assert counting == [(5, 5.0), (10, 1.0), (20, 6.0), (30, 3.0)]
    assert everything == [(5, 5.0), (10, 1.0), (20, 2.0), (20, 4.0), (20, 6.0), (30, 3.0)]
    assert len(reports(home)) == 6
    assert len([message for message in caplog.messages if "goes back" in message]) == 1


@pytest.mark.parametrize(
    ("metrics", "kept"),
    [
        ({"a": 0.5, "b": -1.0}, {"a": 0.5, "b": -1.0}),
        ({"a": 2**63, "b": -(2**63)}, {"a": 2**63, "b": -(2**63)}),
        ({"a": True, "b": math.inf}, {"a": 1, "b": math.inf}),
        ({"b": 0.5, "a": np.float32(0.25)}, {"a": 0.25, "b": 0.5}),
        ({"a": 0.5, "c": torch.tensor(2.0)}, {"a": 0.5, "c": 2.0}),
    ],
)
def test_later_reports_of_a_group_are_kept_as_the_first(
    context: core.Context, home: Home, metrics: dict[str, Any], kept: dict[str, Any]
) -> None:
    """Reports that resemble the last one take a shorter way, which decides nothing else than the long one."""
    for step in (1, 2):
        context.train.report_training_metrics(step, {"a": 0.0, "b": 0})

    context.train.report_training_metrics(3, metrics)

    assert last_metrics(home) == kept
    for refused in ({"a": 2**64, "b": 0.0}, {"a": "text", "b": 0.0}):
        with pytest.raises(InvalidMetricError):
            context.train.report_training_metrics(4, refused)
    with pytest.raises(DuplicateMetricError):
        context.train.report_training_metrics(3, {"a": 0.0, "b": 0.0})
    assert len(reports(home)) == 3


def test_threads_may_report(context: core.Context, home: Home) -> None:
    """When threads report the same steps, each step counts once."""
    refused = []

    def report(loss: float) -> None:
        for step in range(300):
            try:
                context.train.report_training_metrics(step, {"loss": loss})
            except DuplicateMetricError as error:
                refused.append(error)

    threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    recorded = {one.steps_completed: one.metrics["loss"] for one in reports(home)}
    counting = [(row.steps_completed, row.metrics["loss"]) for row in Tracker().get_trial(1).iter_metrics()]
    assert counting == sorted(recorded.items())
    assert len(counting) == 300
    assert len(reports(home)) + len(refused) == 4 * 300


def test_a_report_on_its_way_is_not_made_again(context: core.Context, home: Home) -> None:
    """A report is refused while another thread is still writing the same one."""
    ledger, lock = context.train._ledger, context.train._journal.lock
    refused: list[DuplicateMetricError] = []

    def report() -> None:
        try:
            context.train.report_training_metrics(1, {"loss": 1.0})
        except DuplicateMetricError as error:
            refused.append(error)

    thread = threading.Thread(target=report)
    with lock:
        ledger.enter("training", 1, {"loss": 1.0})
        thread.start()
        context.train._journal.append(Report(1.0, "training", 1, {"loss": 1.0}))
    thread.join()

    assert len(refused) == 1
    assert [r.steps_completed for r in reports(home)] == [1]


def test_a_signal_handler_may_report(run_script: Callable[..., tuple[int, str, str]]) -> None:
    """A signal handler may report, although it interrupts reports of its own thread."""
    status, output, errors = run_script(
        """
        import signal
        from core_sdk import core
        with core.init() as context:
            num_signals = 0
            def handle(*_):
                global num_signals
                num_signals += 1
                context.train.report_metrics("signals", num_signals, {"received": 1.0})
            signal.signal(signal.SIGALRM, handle)
            signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
            step = 0
            while num_signals < 1000:
                step += 1
                context.train.report_training_metrics(step, {"loss": 1.0})
            signal.setitimer(signal.ITIMER_REAL, 0)
            print("reported")
        """
    )

    assert (status, output) == (0, "reported\n"), errors


@pytest.mark.parametrize("name", [1, "", "\ud800"])
def test_names_in_batches_are_checked_like_all_others(context: core.Context, home: Home, name: Any) -> None:
    """Bad names in batches are refused, and the step can be reported again correctly."""
    with pytest.raises((TypeError, InvalidNameError)):
        context.train.report_training_metrics(1, {"loss": 1.0}, [{name: 1.0}])
    context.train.report_training_metrics(1, {"loss": 1.0}, [{"loss": 1.0}])

    assert [r.batch_metrics for r in reports(home)] == [[{"loss": 1.0}]]


class Group(str, enum.Enum):  # scripts have them; a StrEnum is no trouble
    TEST = "test"


@pytest.mark.parametrize("group", [Group.TEST, np.str_("test")])
def test_a_group_may_be_any_kind_of_string(context: core.Context, home: Home, group: str) -> None:
    """A string enum or NumPy string names the same group as the plain string."""
    context.train.report_metrics(group, 1, {"loss": 1.0})

    with pytest.raises(DuplicateMetricError):
        context.train.report_metrics("test", 1, {"loss": 1.0})
    assert [r.group for r in reports(home)] == ["test"]


def test_a_data_loader_worker_is_refused_and_harms_nothing(context: core.Context, home: Home) -> None:
    """A report in a forked child raises an error, and the parent goes on reporting."""
    child = os.fork()
    if child == 0:
        try:
            context.train.report_training_metrics(1, {"loss": 1.0})
        except JournalError:
            os._exit(42)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    context.train.report_training_metrics(1, {"loss": 2.0})

    assert os.waitstatus_to_exitcode(status) == 42
    assert [r.metrics for r in reports(home)] == [{"loss": 2.0}]


@pytest.mark.parametrize("progress", [-0.1, 1.1, math.nan])
def test_progress_is_a_fraction(context: core.Context, progress: float) -> None:
    """A progress outside of 0 to 1 is refused."""
    with pytest.raises(ValueError, match="progress"):
        context.train.report_progress(progress)


def test_metadata_comes_back_in_later_attempts_too(context: core.Context) -> None:
    """set_metadata() replaces all metadata and keeps infinite values."""
    context.train.set_metadata({"first": 1})

    stored = context.train.set_metadata({"best": math.inf, "shape": (1, 2)})

    assert stored == {"best": math.inf, "shape": [1, 2]}
    assert context.train.get_metadata() == stored


def test_metadata_is_a_dict(context: core.Context, home: Home) -> None:
    """Metadata that is not a dict is refused."""
    with pytest.raises(TypeError, match="metadata"):
        context.train.set_metadata([1])  # type: ignore[arg-type]

    assert [chunk.bad_lines for chunk in read_journal(home.trial(1).journal_path(1))] == [[]]


def test_best_validation_is_over_the_whole_experiment(context: core.Context) -> None:
    """The best validation is the smallest over all trials of the experiment, ignoring NaN."""
    assert context.train.get_experiment_best_validation() is None
    context.train.report_validation_metrics(1, {"loss": 0.5, "epochs": 1})
    context.train.report_validation_metrics(2, {"loss": math.nan, "epochs": 2})
    with core.init(name="reports") as sibling:
        sibling.train.report_validation_metrics(1, {"loss": 0.25, "epochs": 1})
    with core.init(name="another experiment") as other:
        other.train.report_validation_metrics(1, {"loss": 0.1, "epochs": 1})

    assert context.train.get_experiment_best_validation() == 0.25


@pytest.mark.parametrize("num_reports", [200_000, 1_000_000])
def test_many_reports_leave_memory_flat(run_script: Callable[..., tuple[int, str, str]], num_reports: int) -> None:
    """Memory does not grow with the number of reports."""
    status, output, errors = run_script(
        """
        import psutil, sys
        from core_sdk import core
        memory = psutil.Process().memory_info
        with core.init() as context:
            report = context.train.report_training_metrics
            for step in range(100_000):
                report(step, {"loss": 0.5, "accuracy": 0.5, "rate": 0.5})
            before = memory().rss
            for step in range(100_000, int(sys.argv[1])):
                report(step, {"loss": 0.5, "accuracy": 0.5, "rate": 0.5})
            print((memory().rss - before) // 1024)
        """,
        str(num_reports),
    )

    assert status == 0, errors
    assert int(output) < 8 * 1024
