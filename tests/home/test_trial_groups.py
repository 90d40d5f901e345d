"""Trials with the same values are a group, and a group has typical values and a best trial."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_sdk._ground.records import SearcherMetric
from core_sdk._home.finding.facts import Facts, facts
from core_sdk._home.finding.groups import (
    Aggregate,
    GroupBest,
    aggregate,
    best_of,
    default_metric,
    group_names,
    group_trials,
)
from core_sdk._home.rows import Figures, TrialRow

LOSS = SearcherMetric(name="loss")


def trial(trial_id: int, *labels: str, loss: float | None = None, **hparams: Any) -> Facts:
    row = TrialRow(
        trial_id=trial_id, experiment_id=1, experiment_name="digits", state="COMPLETED", reason="", hparams=hparams,
        created=0.0, ended=1.0, num_attempts=1, steps_completed=1, progress=None, status="", metadata=None,
        latest_checkpoint=None, continued_from=None, num_dropped=0, num_bad_lines=0, ranks=(), labels=labels,
        environment=None,
    )  # fmt: skip
    return facts(row, {} if loss is None else {"validation": {"loss": Figures(loss, loss, loss)}})


def grouped(found: list[Facts], *names: str) -> list[tuple[tuple[Any, ...], list[int]]]:
    return [(group.values, group.trial_ids) for group in group_trials(found, names)]


def test_trials_with_equal_values_are_a_group() -> None:
    """Numbers by their size, then texts, then trials without a value; 1 is 1.0, but not true."""
    found = [trial(5, lr=1), trial(1, lr=1.0), trial(2, lr="1"), trial(3, lr=True), trial(4), trial(6, lr=0.1)]

    assert grouped(found, "lr") == [((0.1,), [6]), ((1.0,), [1, 5]), ((True,), [3]), (("1",), [2]), ((None,), [4])]


def test_nested_hyperparameters_and_labels_are_keys_together() -> None:
    """Trials can be grouped by nested hyperparameters and labels, in any order of the labels."""
    found = [trial(1, "b", "a", net={"size": 2}), trial(2, "a", "b", net={"size": 2}), trial(3, net={"size": 2})]

    assert grouped(found, "net.size", "label") == [((2, "a, b"), [1, 2]), ((2, None), [3])]
    assert group_names(found)[0] == "label"


def test_values_that_are_not_finite_are_no_part_of_an_aggregate() -> None:
    """Aggregates leave out and count non-finite values, and a single value has no deviation."""
    assert aggregate([1.0, 3, math.nan, math.inf, None]) == Aggregate(2.0, math.sqrt(2), 1.0, 3.0, 2, 2)
    assert aggregate([4.0]) == Aggregate(4.0, None, 4.0, 4.0, 1, 0)
    assert aggregate([math.nan, "text", None]) is None


def test_the_ranking_says_which_trial_is_best() -> None:
    """NaN and infinite values never win, and the first trial wins among equals."""
    found = [
        trial(1, loss=math.nan),
        trial(2, loss=-math.inf),
        trial(4, loss=1.0),
        trial(3, loss=1.0),
        trial(5, loss=2),
    ]

    assert best_of(found, LOSS) == GroupBest(3, 1.0)
    assert best_of(found, SearcherMetric.named("max.validation.loss")) == GroupBest(5, 2)
    assert best_of(found[:2], LOSS) is None
    with pytest.raises(ValueError, match=r"min\.METRIC"):
        SearcherMetric.named("loss")


def test_the_searchers_metric_decides_unless_experiments_differ() -> None:
    """Trials are ranked by the searcher's metric, or by the first metric if experiments differ."""
    accuracy, loss = SearcherMetric(name="accuracy", smaller_is_better=False), SearcherMetric(name="loss")
    found = [trial(1, loss=1.0)]

    assert default_metric(found, [None, accuracy, accuracy]) == SearcherMetric(
        name="validation.accuracy", smaller_is_better=False
    )
    assert default_metric(found, [accuracy, loss]) == SearcherMetric(name="validation.loss")
    assert default_metric([trial(1)], [None]) is None


@given(values=st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=20))
def test_the_mean_lies_between_the_extremes(values: list[float]) -> None:
    """The mean is between the extremes and does not depend on the order."""
    found = aggregate(values)

    assert found is not None
    assert found.minimum <= found.mean <= found.maximum
    assert found == aggregate(reversed(values))
