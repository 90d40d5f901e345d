"""The newest step of each metric is known, in whatever order steps and names come, at a price that stays small."""

from __future__ import annotations

import logging
import random
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core_sdk.core._train._ledger import Ledger, TrialLedger
from core_sdk.errors import DuplicateMetricError


def refused(ledger: Ledger, step: int, names: Iterable[str] = ("loss",), group: str = "training") -> list[str]:
    """Enters a report and returns the names that are refused."""
    try:
        ledger.enter(group, step, names)
    except DuplicateMetricError as error:
        return str(error).partition(" of group")[0].replace("'", "").split(", ")
    return []


STEPS = st.integers(0, 6) | st.integers(0, 2**62)
LAYOUTS = st.sampled_from(
    [(), ("loss",), ("accuracy",), ("loss", "accuracy"), ("accuracy", "loss"), ("accuracy", "rate")]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=st.lists(st.tuples(STEPS, LAYOUTS), max_size=60))
def test_exactly_the_names_whose_newest_step_is_repeated_are_refused(
    reports: list[tuple[int, tuple[str, ...]]], caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger refuses the same names as a dict of all names, and a refused report has no effect."""
    caplog.clear()
    ledger = TrialLedger()
    newest: dict[str, int] = {}
    goes_back = False

    for step, names in reports:
        repeated = sorted(name for name in names if newest.get(name) == step)

        assert refused(ledger, step, names) == repeated

        if not repeated:
            goes_back |= any(newest.get(name, -1) > step for name in names)
            newest |= {name: max(step, newest.get(name, -1)) for name in names}
    assert len(caplog.records) == goes_back


def test_a_group_that_goes_back_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the group, both steps and the remedy; other groups and metrics are independent."""
    caplog.set_level(logging.WARNING)
    ledger = TrialLedger()
    ledger.enter("training", 20, ["loss"])
    ledger.enter("validation", 10, ["loss"])
    ledger.enter("training", 10, ["epoch_loss"])
    warned_early = caplog.messages[:]

    for step in (10, 11, 5):
        ledger.enter("training", step, ["loss"])

    (warning,) = caplog.messages
    assert not warned_early
    assert "group 'training' goes back from step 20 to step 10" in warning
    assert "Count steps over the whole training" in warning


def test_memory_does_not_grow_with_the_training() -> None:
    """The ledger's memory is bounded, even if steps go back often."""
    rng = random.Random(0)
    steps = [rng.randrange(2**40) for _ in range(20_000)] + sorted(rng.randrange(2**40) for _ in range(20_000))
    ledger = TrialLedger()
    tracemalloc.start()

    for step in steps:
        refused(ledger, step, ("loss", "accuracy"))

    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 50_000
