"""Guards decide from the reports alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_sdk._ground.guards import (
    Guard,
    MetricWatch,
    Trouble,
    checked_guards,
    parse_guard,
    place_of,
    values_of,
    words_of,
)
from core_sdk._ground.guards._rules import AboveMedian, Bound, NotBetter, NotFinite, RobustScore, Rule


def words(rule: Rule, values: Sequence[float]) -> list[str]:
    return [rule.judge(steps, value) for steps, value in enumerate(values)]


def guard(rule: str = "not_finite", action: str = "go_back", **options: object) -> Guard:
    words = [f"{name}={value}" for name, value in options.items()]
    return parse_guard(" ".join(["loss", rule, f"action={action}", *words]))


def test_a_value_that_is_not_finite() -> None:
    assert words(NotFinite(), [1.0, math.nan, -math.inf]) == ["", "is nan", "is -inf"]


def test_a_value_beyond_a_bound() -> None:
    assert words(Bound(below=0, above=10), [0, 10, -1, 10.5, math.nan]) == [
        "",
        "",
        "-1 is below 0",
        "10.5 is above 10",
        "",
    ]


def test_a_spike_is_a_multiple_of_the_median() -> None:
    """The spike itself does not become usual, and there is no median of less than five values."""
    rule = AboveMedian(10, 50)

    found = words(rule, [90.0, 3.0, 3.0, 3.0, 3.0, 38.1, 3.1, 38.1])

    assert found == [
        *[""] * 5,
        "38.1 is 12.7 times the median of the last 5",
        "",
        "38.1 is 12.7 times the median of the last 6",
    ]


def test_a_robust_score_knows_the_usual_noise() -> None:
    generator = random.Random(1)
    rule = RobustScore(8, 100)

    assert not any(words(rule, [generator.gauss(2, 0.5) for _ in range(10_000)]))
    assert rule.judge(10_000, 2.0 + 0.5 * 20).startswith("12 lies ")


def test_values_that_are_all_equal_have_no_score() -> None:
    assert not any(words(RobustScore(3, 10), [1.0] * 10 + [2.0]))


def test_a_metric_that_has_not_become_better() -> None:
    rule = NotBetter(3, smaller_is_better=False)

    assert words(rule, [0.5, 0.6, 0.6, 0.2, 0.6, 0.7]) == ["", "", "", "", "was best at step 1, 3 steps ago", ""]


@pytest.mark.parametrize("make", [lambda: Bound(), lambda: AboveMedian(0, 50), lambda: RobustScore(3, 1)])
def test_a_rule_that_means_nothing_is_refused(make: type[Rule]) -> None:
    with pytest.raises(ValueError):
        make()


def test_trouble_begins_after_the_last_good_report() -> None:
    watch = MetricWatch([guard()], resumed_steps=100)

    assert watch.feed("training", 110, {"loss": 1.0, "lr": math.nan}) == []
    assert watch.feed("validation", 115, {"loss": math.nan}) == []
    assert watch.feed("training", 120, {"loss": math.nan}) == [Trouble(0, "go_back", 120, 110, "loss is nan")]


@pytest.mark.parametrize(("values", "good_until"), [([math.nan], 99), ([1.0, math.nan], 101)])
def test_trouble_at_once_after_going_back_began_before(values: list[float], good_until: int) -> None:
    """The checkpoint at step 100 was spoiled already, unless a good report has come since."""
    watch = MetricWatch([guard()], resumed_steps=100, has_gone_back=True)

    found = [watch.feed("training", 101 + number, {"loss": value}) for number, value in enumerate(values)]

    assert [each.good_until for each in found[-1]] == [good_until]


def test_who_stops_after_going_back_suspects_no_earlier_checkpoint() -> None:
    """A person decides from where it goes on."""
    watch = MetricWatch([guard(max_times=1)], 100, {0: 1}, has_gone_back=True)

    assert watch.feed("training", 101, {"loss": math.nan}) == [Trouble(0, "stop", 101, 100, "loss is nan")]


def test_one_cause_is_decided_once() -> None:
    """What follows a decision for which the attempt ends decides nothing more."""
    watch = MetricWatch([guard(), guard(action="alert")], resumed_steps=0)

    first = watch.feed("training", 10, {"loss": math.nan})

    assert [trouble.action for trouble in first] == ["go_back"]
    assert watch.feed("training", 20, {"loss": math.nan}) == []


def test_an_alert_is_given_once_for_each_trouble() -> None:
    watch = MetricWatch([guard(action="alert")], resumed_steps=0)

    found = [
        watch.feed("training", step, {"loss": value}) for step, value in enumerate([math.nan, math.nan, 1, math.nan])
    ]

    assert [len(each) for each in found] == [1, 0, 0, 1]


def test_who_has_gone_back_often_enough_stops() -> None:
    for times, action in ((2, "go_back"), (3, "stop")):
        (trouble,) = MetricWatch([guard(max_times=3)], 0, {0: times}).feed("training", 1, {"loss": math.nan})
        assert trouble.action == action


def test_what_was_best_long_ago_was_good_until_then() -> None:
    watch = MetricWatch([guard("not_better_for=3")], resumed_steps=0)

    found = [each for step in range(1, 7) for each in watch.feed("training", step, {"loss": max(1.0, 3.0 - step)})]

    assert [(each.steps, each.good_until) for each in found] == [(5, 2)]


def test_earlier_reports_are_known_and_decide_nothing() -> None:
    watch = MetricWatch([guard("above_median=10")], resumed_steps=6)

    for step in range(7):
        watch.know("training", step, {"loss": 1.0 if step < 6 else 99.0})

    assert [each.good_until for each in watch.feed("training", 7, {"loss": 11.0})] == [6]


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("loss not_finite", ("training", "loss")),
        ("validation.loss above=3.5 below=1", ("validation", "loss")),
        ("grad.norm above_median=12 last=20 action=go_back skip_batches=2", ("training", "grad.norm")),
        ("test/acc not_better_for=500 larger_is_better action=stop", ("test", "acc")),
    ],
)
def test_a_guard_can_be_written_in_words(words: str, place: tuple[str, str]) -> None:
    written = parse_guard(words)

    assert place_of(written) == place
    assert parse_guard(words_of(written)) == written == checked_guards([values_of(written)])[0]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("loss", "has no rule"),
        ("loss not_finite above=3", "has not_finite and above"),
        ("loss above_median=0", "> 0"),
        ("loss nan", "'nan' is no option"),
        ("loss not_finite action=back", "'back'"),
        ("loss not_finite skip_batches=1", "is not go_back"),
    ],
)
def test_a_guard_that_means_nothing_is_refused(words: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_guard(words)


@given(st.lists(st.floats(), max_size=60))
def test_the_same_reports_decide_the_same(values: list[float]) -> None:
    guards = [guard(), guard("above_median=3", "alert", last=10), guard("not_better_for=5", "stop")]

    def decided() -> list[Trouble]:
        watch = MetricWatch(guards, 0)
        return [each for step, value in enumerate(values) for each in watch.feed("training", step, {"loss": value})]

    found = decided()

    assert found == decided()
    assert sum(trouble.action != "alert" for trouble in found) <= 1
    assert all(trouble.good_until <= trouble.steps for trouble in found)
