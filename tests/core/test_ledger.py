"""No metric is reported twice for a step, in whatever order the steps come, at a price that stays small."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_sdk import core
from core_sdk.core import _ledger
from core_sdk.core._ledger import Ledger
from core_sdk.errors import DuplicateMetricError


def is_refused(ledger: Ledger, step: int, names: Iterable[str] = ("loss",)) -> bool:
    try:
        ledger.enter("training", step, names)
    except DuplicateMetricError:
        return True
    return False


STEPS = st.integers(0, 40) | st.integers(0, 2**62) | st.integers(0, 1000).map(lambda number: number * 10)
LAYOUTS = st.sampled_from([("loss",), ("accuracy",), ("loss", "accuracy"), ("accuracy", "rate"), ()])


@pytest.mark.parametrize("most_copied", [0, 1 << 10], ids=["steps are shared", "steps are copied"])
@given(reports=st.lists(st.tuples(STEPS, LAYOUTS), max_size=200))
def test_exactly_what_was_reported_is_refused(most_copied: int, reports: list[tuple[int, tuple[str, ...]]]) -> None:
    """As a set of all steps and names would say, also where names that came together come apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ledger, "_MOST_UNITS_COPIED", most_copied)
        _check_against_a_set(reports)


def _check_against_a_set(reports: list[tuple[int, tuple[str, ...]]]) -> None:
    ledger = Ledger(lambda: Path("missing"))
    reported: set[tuple[int, str]] = set()

    for step, names in reports:
        keys = {(step, name) for name in names}

        assert is_refused(ledger, step, names) == bool(keys & reported)

        if not keys & reported:
            reported |= keys


def even(num_reports: int) -> list[int]:
    return list(range(0, num_reports * 10, 10))


def uneven(num_reports: int) -> list[int]:
    rng = random.Random(0)
    step = 0
    return [step := step + rng.randrange(1, 5000) for _ in range(num_reports)]


def shuffled(num_reports: int) -> list[int]:
    steps = list(range(num_reports))
    random.Random(0).shuffle(steps)
    return steps


@pytest.mark.parametrize(
    ("steps_of_a_training", "num_reports", "max_bytes"),
    [
        (even, 2_000_000, 100e3),
        (uneven, 200_000, 4e6),
        (shuffled, 20_000, 1e6),
        pytest.param(uneven, 2_000_000, 40e6, marks=pytest.mark.slow),
        pytest.param(shuffled, 200_000, 1e6, marks=pytest.mark.slow),
    ],
)
def test_going_back_costs_no_time_and_little_memory(
    steps_of_a_training: Callable[[int], list[int]], num_reports: int, max_bytes: float
) -> None:
    """After millions of reports, in whatever order they came."""
    steps = steps_of_a_training(num_reports)
    tracemalloc.start()
    ledger = Ledger(lambda: Path("missing"))
    for step in steps:
        ledger.enter("training", step, ("loss", "accuracy"))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    again = steps[:: len(steps) // 100]

    durations = []
    for step in again:
        begin = time.perf_counter()
        refused = is_refused(ledger, step)
        durations.append(time.perf_counter() - begin)
        assert refused
        assert not is_refused(ledger, step, ("rate",))

    assert peak_bytes < max_bytes
    assert sorted(durations)[len(durations) // 2] < 1e-3


def test_thousands_of_layouts_are_remembered() -> None:
    """Each with a name that all have, and one of its own, at falling steps; the journal is not looked into."""
    ledger = Ledger(lambda: Path("missing"))
    layouts = {step: ("loss", f"loss {step}") for step in reversed(range(3_000))}

    assert not any(is_refused(ledger, step, names) for step, names in layouts.items())

    assert all(is_refused(ledger, step, ("loss",)) for step in layouts)
    assert all(is_refused(ledger, step, (f"loss {step}", "new")) for step in layouts)
    assert not any(is_refused(ledger, step, (f"loss {step - 1}",)) for step in layouts)


@pytest.fixture
def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ledger, "_MAX_UNITS", 2_000)


@pytest.mark.usefixtures("short_of_memory")
def test_what_is_not_remembered_is_looked_for_in_the_journal() -> None:
    """Names that are new at each step, say."""
    with core.init() as context:
        report = context.train.report_metrics
        for step in range(100):
            report("a", step, {f"loss {step}": 1.0, "loss": 1.0})
        report("b", 100, {"loss": 1.0})

        for step in (0, 50, 98, 99):
            with pytest.raises(DuplicateMetricError):
                report("a", step, {"loss": 2.0})
            report("a", step, {"other": 1.0})
            report("b", step, {"loss": 1.0})
        with pytest.raises(DuplicateMetricError):
            report("a", 50, {"other": 1.0})


@pytest.mark.usefixtures("short_of_memory")
def test_a_journal_that_cannot_be_read_loses_no_report() -> None:
    """Whether the step is there already can then not be told; that is no reason to stop a training."""
    with core.init() as context:
        journal = context.train._journal.path
        for step in range(100):
            context.train.report_training_metrics(step, {f"loss {step}": 1.0})
        journal.rename(journal.with_name("elsewhere"))
        journal.mkdir()

        context.train.report_training_metrics(0, {"loss 0": 2.0})

        journal.rmdir()
        journal.with_name("elsewhere").rename(journal)
