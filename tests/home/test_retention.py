"""The rules of what is kept, on plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_sdk._ground.records import KeepEvery, Metric, RetentionPolicy, SearcherMetric
from core_sdk._home.deletion.retention import Candidate, References, in_order_of_trust, keep, protect

LOSS = SearcherMetric(name="loss")
ACCURACY = SearcherMetric(name="accuracy", smaller_is_better=False)


def checkpoint(storage_id: object, trial_id: int = 1, loss: Metric | None = None, **fields: Any) -> Candidate:
    validation: Mapping[str, Metric] = {} if loss is None else {"loss": loss}
    return Candidate(str(storage_id), trial_id, validation, **fields)


def policy(experiment_best: int, trial_best: int, trial_latest: int) -> RetentionPolicy:
    return RetentionPolicy(
        save_experiment_best=experiment_best, save_trial_best=trial_best, save_trial_latest=trial_latest
    )


DOCUMENTED = [
    checkpoint(1, 1),
    checkpoint(2, 1),
    checkpoint(3, 1, 0.6),
    checkpoint(4, 1, 0.5),
    checkpoint(5, 1, 0.4),
    checkpoint(6, 2),
    checkpoint(7, 2, 0.2),
    checkpoint(8, 2, 0.3),
    checkpoint(9, 2),
    checkpoint(10, 2),
]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 0, 0), set()),
        ((2, 0, 0), {7, 8}),
        ((5, 0, 0), {3, 4, 5, 7, 8}),
        ((9, 0, 0), {3, 4, 5, 7, 8}),
        ((0, 1, 0), {5, 7}),
        ((0, 0, 1), {5, 10}),
        ((0, 0, 3), {3, 4, 5, 8, 9, 10}),
        ((2, 1, 0), {5, 7, 8}),
        ((0, 1, 1), {5, 7, 10}),
        ((2, 1, 1), {5, 7, 8, 10}),
    ],
)
def test_the_documented_example(numbers: tuple[int, int, int], expected: set[int]) -> None:
    """Two trials, three validated checkpoints in the first and two in the second; smaller is better."""
    assert keep(DOCUMENTED, policy(*numbers), LOSS).keys() == set(map(str, expected))


def test_each_trial_keeps_its_latest_though_none_was_validated() -> None:
    """The latest checkpoint is ranked within its trial, even if no checkpoint was validated."""
    candidates = [checkpoint("a", 1), checkpoint("b", 1), checkpoint("c", 2), checkpoint("d", 3), checkpoint("e", 3)]

    kept = keep(candidates, policy(0, 0, 1), LOSS)

    assert kept.keys() == {"b", "c", "e"}


def test_larger_can_be_better() -> None:
    """A larger metric is better if the searcher's metric says so."""
    candidates = [Candidate(str(n), 1, {"accuracy": value}) for n, value in enumerate([0.1, 0.9, 0.5])]

    assert keep(candidates, policy(0, 1, 0), ACCURACY).keys() == {"1"}


@pytest.mark.parametrize("metric", [LOSS, SearcherMetric(name="loss", smaller_is_better=False)])
def test_of_equal_checkpoints_the_earlier_is_better(metric: SearcherMetric) -> None:
    """Of equal checkpoints the earlier one is better, in both directions."""
    candidates = [checkpoint("a", 1, 0.5), checkpoint("b", 1, 0.5), checkpoint("c", 2, 0.5), checkpoint("d", 2, 0.5)]

    assert keep(candidates, policy(0, 1, 0), metric).keys() == {"a", "c"}
    assert keep(candidates, policy(1, 0, 0), metric).keys() == {"a"}


@pytest.mark.parametrize("smaller_is_better", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_best(smaller_is_better: bool, value: float) -> None:
    """A checkpoint with NaN or an infinity is never the best, even if there is no other."""
    metric = SearcherMetric(name="loss", smaller_is_better=smaller_is_better)
    beside_a_number = [checkpoint("a", 1, value), checkpoint("b", 1, 7.0)]

    assert keep(beside_a_number[:1], policy(1, 1, 0), metric) == {}
    assert keep(beside_a_number, policy(1, 1, 0), metric).keys() == {"b"}


def test_a_checkpoint_without_the_metric_is_not_the_best_beside_one_that_has_it() -> None:
    """A checkpoint without the metric is never better than one with it."""
    candidates = [Candidate("a", 1, {"accuracy": 0.9}), checkpoint("b", 1, 0.5)]

    assert keep(candidates, policy(1, 1, 0), LOSS).keys() == {"b"}


def test_a_metric_that_nobody_reported_calls_no_checkpoint_worse() -> None:
    """If no checkpoint has the metric, all validated ones are kept, since the metric may be mistyped."""
    candidates = [checkpoint(str(step), 1, loss) for step, loss in enumerate([1.0, 0.1, 0.5, 0.6], start=1)]
    mistyped = SearcherMetric(name="los")

    kept = keep(candidates, policy(0, 1, 1), mistyped)

    assert kept.keys() == {"1", "2", "3", "4"}
    assert kept["2"] == ["validated, and none has the metric 'los' to call it worse"]
    assert keep(candidates, policy(1, 0, 1), mistyped).keys() == {"1", "2", "3", "4"}
    assert keep(candidates, policy(0, 0, 1), mistyped).keys() == {"4"}


def test_a_trial_that_never_reported_the_metric_keeps_what_it_validated() -> None:
    """A trial without the metric keeps its validated checkpoints, and others are ranked by the metric."""
    candidates = [checkpoint("a", 1, 0.5), checkpoint("b", 1, 0.6), Candidate("c", 2, {"los": 0.1}), checkpoint("d", 2)]

    assert keep(candidates, policy(0, 1, 0), LOSS).keys() == {"a", "c"}
    assert keep(candidates, policy(1, 0, 0), LOSS).keys() == {"a"}


def test_a_superseded_checkpoint_takes_no_place() -> None:
    """A superseded checkpoint is neither the best nor the latest."""
    candidates = [checkpoint("a", 1, 0.5), checkpoint("b", 1, 0.1, is_superseded=True)]

    assert keep(candidates, policy(1, 1, 1), LOSS).keys() == {"a"}


def test_a_partly_deleted_checkpoint_is_never_the_latest_and_may_be_the_best() -> None:
    """A partly deleted checkpoint is never the latest one but may be the best."""
    candidates = [checkpoint("a", 1, 0.5), checkpoint("b", 1, 0.1, is_partial=True)]

    assert keep(candidates, policy(0, 0, 1), LOSS).keys() == {"a"}
    assert keep(candidates, policy(0, 1, 0), LOSS).keys() == {"b"}


def test_without_a_metric_all_validated_checkpoints_are_kept() -> None:
    """Without a metric all validated checkpoints are kept, unless the policy keeps no best ones."""
    candidates = [checkpoint("a", 1), checkpoint("b", 1, 0.5), checkpoint("c", 1, 0.6), checkpoint("d", 1)]

    kept = keep(candidates, policy(0, 1, 1), None)

    assert kept.keys() == {"b", "c", "d"}
    assert "no metric is known" in kept["b"][0]
    assert keep(candidates, policy(0, 0, 1), None).keys() == {"d"}


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        ({"steps": 10}, {10, 29, 30}),
        ({"steps": 1}, {9, 10, 19, 29, 30, 39}),
        ({"steps": 40}, set()),
        ({"hours": 1}, {19, 39}),
        ({"hours": 0.5}, {10, 19, 39}),
    ],
)
def test_the_first_checkpoint_of_each_interval_is_kept(every: dict[str, float], expected: set[int]) -> None:
    """The first at or after each multiple of steps or hours is kept; those before the first multiple are not."""
    hours = {9: 0.25, 10: 0.5, 19: 1.0, 29: 1.25, 30: 1.25, 39: 7.75}
    candidates = [checkpoint(steps, steps_completed=steps, hours=at) for steps, at in hours.items()]
    others = [replace(each, storage_id=f"other {each.storage_id}", trial_id=2) for each in candidates]
    numbers = {"save_trial_best": 0, "save_trial_latest": 0}

    kept = keep([*candidates, *others], RetentionPolicy.checked({**numbers, "keep_every": every}), LOSS)

    assert kept.keys() == {f"{of_trial}{steps}" for of_trial in ("", "other ") for steps in expected}


def test_a_partly_deleted_checkpoint_can_be_the_first_of_an_interval_and_a_superseded_one_cannot() -> None:
    """A pruned checkpoint stays the first of its interval; a superseded one leaves its place to a later one."""
    candidates = [
        checkpoint("a", steps_completed=10, is_superseded=True),
        checkpoint("b", steps_completed=12, is_partial=True),
        checkpoint("c", steps_completed=14),
    ]

    kept = keep(candidates, RetentionPolicy(save_trial_latest=0, keep_every=KeepEvery(steps=10)), LOSS)

    assert kept == {"b": ["first since 10 steps"]}


@given(st.data())
def test_it_makes_no_difference_when_collections_run(data: st.DataObject) -> None:
    """Whatever was collected between saves and resumes, the end keeps what it would have kept without that."""
    width = data.draw(st.integers(1, 12))
    rule = RetentionPolicy(save_trial_best=0, save_trial_latest=1, keep_every=KeepEvery(steps=width))
    ever: list[Candidate] = []
    deleted: set[str] = set()
    steps = 0

    def there() -> Sequence[Candidate]:
        return [each for each in ever if each.storage_id not in deleted]

    for number in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["save", "save", "save", "collect", "resume"])):
            case "save":
                steps += data.draw(st.integers(1, 9))
                ever.append(checkpoint(number, steps_completed=steps))
            case "collect":
                deleted |= {each.storage_id for each in there()} - keep(there(), rule, LOSS).keys()
            case "resume" if standing := [each for each in there() if not each.is_superseded]:
                steps = data.draw(st.sampled_from(standing)).steps_completed
                ever = [
                    replace(each, is_superseded=each.is_superseded or each.steps_completed > steps) for each in ever
                ]

    standing = [each for each in ever if not each.is_superseded]
    firsts = {each.steps_completed // width: each.storage_id for each in reversed(standing)}
    expected = {storage_id for index, storage_id in firsts.items() if index > 0} | {c.storage_id for c in standing[-1:]}
    assert keep(there(), rule, LOSS).keys() == expected


@pytest.mark.parametrize(
    "wrong",
    [5, {}, {"steps": 0}, {"steps": 1.5}, {"steps": True}, {"steps": "9"}, {"hours": -1}, {"hours": math.nan},
     {"hours": math.inf}, {"steps": 2**63}, {"epochs": 1}, {"steps": 1, "hours": 1}],
)  # fmt: skip
def test_an_interval_is_a_number_of_steps_or_of_hours(wrong: object) -> None:
    """Anything but a positive number of one unit is refused, with what to write."""
    with pytest.raises(ValueError, match=r"keep_every must be \{steps: N\} with a whole number, or \{hours: N\}"):
        RetentionPolicy.checked({"keep_every": wrong})


def test_every_reason_to_keep_a_checkpoint_is_given() -> None:
    """All reasons for keeping a checkpoint are listed."""
    kept = keep([checkpoint("a", 7, 0.5)], policy(2, 1, 1), LOSS)

    assert kept["a"] == ["best 2 of the experiment", "best 1 of trial 7", "latest 1 of trial 7"]


@pytest.mark.parametrize(
    ("candidate", "references", "reason"),
    [
        (checkpoint("a", is_pinned=True), References(), "pinned"),
        (checkpoint("a", is_pinned=True, note="paper"), References(), "pinned: paper"),
        (checkpoint("a"), References(sources={"a": {4}}), "trial 4 began with it"),
        (checkpoint("a"), References(uses={"a": {5}}), "used by the running trial 5"),
        (checkpoint("a"), References(running={1: 3}), "attempt 3 of trial 1 is running"),
        (checkpoint("a"), References(doubtful={1: "a line is damaged"}), "a line is damaged"),
    ],
)
def test_what_is_referred_to_is_protected(candidate: Candidate, references: References, reason: str) -> None:
    """A checkpoint that is pinned or referred to is protected, with the reason."""
    protected = protect([candidate, checkpoint("other", 9)], references)

    assert protected == {"a": [reason]}


def test_a_trial_goes_on_from_its_newest_whole_checkpoint() -> None:
    """Whole checkpoints come newest first, superseded ones after them, and partial ones are left out."""
    candidates = [
        checkpoint("a"),
        checkpoint("b", is_superseded=True),
        checkpoint("c"),
        checkpoint("d", is_partial=True),
    ]

    assert [candidate.storage_id for candidate in in_order_of_trust(candidates)] == ["c", "a", "b"]


@pytest.mark.parametrize("value", [True, 1.0, "1"])
def test_numbers_of_a_policy_are_ints(value: object) -> None:
    """Numbers of a policy must be ints, and bools are refused."""
    with pytest.raises(TypeError, match="save_trial_best"):
        RetentionPolicy.checked({"save_trial_best": value})


def test_numbers_of_a_policy_are_not_negative() -> None:
    """A negative number is refused with its key."""
    with pytest.raises(ValueError, match="save_trial_latest -1"):
        RetentionPolicy.checked({"save_trial_latest": -1})


def test_a_policy_has_the_defaults_of_an_experiment_configuration() -> None:
    """By default the best and the latest checkpoint of each trial are kept, and other keys are ignored."""
    assert RetentionPolicy.checked({"type": "gcs", "bucket": "b"}) == policy(0, 1, 1)
    assert RetentionPolicy.checked({"save_experiment_best": 3}) == policy(3, 1, 1)
    assert RetentionPolicy.checked({"save_trial_best": None}) == policy(0, 1, 1)


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_a_number_is_better_than_what_is_not_finite(smaller_is_better: bool) -> None:
    """Validations are compared as checkpoints are: only a finite value is better, and an equal one is not."""
    metric = SearcherMetric(name="loss", smaller_is_better=smaller_is_better)
    values = [math.nan, 2.0, math.inf, 3.0, -math.inf, 3.0, 2.0]

    best = values[0]
    for value in values[1:]:
        best = value if metric.is_better(value, best) else best

    assert best == (2.0 if smaller_is_better else 3.0)
    assert not metric.is_better(2.0, 2.0)
    assert not metric.is_better(math.inf, math.nan)
