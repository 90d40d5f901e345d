"""Outside a search there is one operation, of the length that was given."""

from __future__ import annotations

from typing import Any

import pytest

from core_sdk import core
from core_sdk._ground.records import OperationCompleted, ProgressReported
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk.core import SearcherMode, Unit


@pytest.mark.parametrize(
    ("max_length", "length", "unit"), [(5, 5, None), ({"epochs": 3}, 3, Unit.EPOCHS), ({"batches": 7}, 7, Unit.BATCHES)]
)
def test_the_one_operation_has_the_given_length(max_length: Any, length: int, unit: Unit | None) -> None:
    """Without a search there is one operation, which has the given length and unit."""
    with core.init(max_length=max_length) as context:
        lengths = []
        for operation in context.searcher.operations():
            lengths.append(operation.length)
            operation.report_completed(0.5)

        assert lengths == [length]
        assert context.searcher.get_configured_units() is unit


def test_progress_and_completion_are_recorded(home: Home) -> None:
    """Progress is a fraction of the operation's length."""
    with core.init(max_length=4) as context:
        for operation in context.searcher.operations(SearcherMode.ChiefOnly):
            operation.report_progress(1)
            operation.report_completed(0.25)

    kept = [
        r for r in read_records(home.trial(1).journal_path(1)) if isinstance(r, (ProgressReported, OperationCompleted))
    ]
    assert [getattr(record, "progress", None) for record in kept] == [0.25, None]
    assert isinstance(kept[1], OperationCompleted)
    assert (kept[1].length, kept[1].metric) == (4, 0.25)


def test_an_operation_must_be_completed() -> None:
    """An operation that ends without report_completed() is an error."""
    with core.init(max_length=1) as context, pytest.raises(RuntimeError, match="report_completed"):
        for _ in context.searcher.operations():
            pass


def test_a_stop_in_the_middle_of_an_operation_is_no_mistake() -> None:
    """A script that breaks out of the loop because of a stop raises no error."""
    with core.init(max_length=1) as context:
        for _ in context.searcher.operations():
            break


@pytest.mark.parametrize("mode", ["CHEIF_ONLY", "CHIEF_ONLY", SearcherMode.ChiefOnly])
def test_the_predecessors_spelling_of_a_mode_is_understood(mode: Any) -> None:
    """The predecessor's misspelt value of a mode is accepted."""
    assert SearcherMode(mode) is SearcherMode.ChiefOnly
    with core.init(max_length=3) as context:
        for operation in context.searcher.operations(mode):
            assert operation.length == 3
            operation.report_completed(0.5)


def test_completing_twice_is_refused() -> None:
    """A second report_completed() is refused."""
    with core.init(max_length=1) as context:
        for operation in context.searcher.operations():
            operation.report_completed(1.0)
            with pytest.raises(RuntimeError):
                operation.report_completed(1.0)


@pytest.mark.parametrize("max_length", [0, -1, {"epochs": 1, "batches": 2}, {"furlongs": 1}])
def test_a_length_that_means_nothing_is_refused(max_length: Any) -> None:
    """A bad max_length is refused at the call of init()."""
    with pytest.raises(ValueError):
        core.init(max_length=max_length)


def test_without_a_length_there_is_one_step_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Without max_length there is one operation of length 1, and a warning."""
    with core.init() as context:
        for operation in context.searcher.operations():
            assert operation.length == 1
            operation.report_completed(1.0)

    assert "max_length" in caplog.text
