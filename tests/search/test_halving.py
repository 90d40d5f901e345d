"""Asynchronous successive halving: who is stopped, and who goes on."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from search.searches import SEED, Watched, adaptive, asha, begin

from core_sdk.search import (
    Close,
    Create,
    ExitedReason,
    Operation,
    Pause,
    Search,
    SearchStarted,
    Shutdown,
    Stop,
    TrialClosed,
    TrialExitedEarly,
    ValidateAfter,
    ValidationCompleted,
)
from core_sdk.search.simulation import TrialExit, simulate, synthetic_curve

BATCHES = range(4, 257, 4)
"""The reports of a training of 256 batches."""


def start(form: str = "stopping", **changes: Any) -> tuple[Search, list[UUID]]:
    """Returns a search on rungs of 16, 64 and 256 batches that keeps one in four, and its first trials."""
    search = begin(asha(form, num_rungs=3, **changes))
    return search, ids_of(search.on(SearchStarted()))


def ids_of(operations: list[Operation]) -> list[UUID]:
    return [operation.request_id for operation in operations if isinstance(operation, Create)]


def report(search: Search, request_id: UUID, metric: float, batches: float) -> list[Operation]:
    """Returns the answer to a validation, without new trials."""
    answer = search.on(search.read_report(request_id, {"loss": metric, "batches": batches}))
    new = ids_of(answer)
    return [one for one in answer if getattr(one, "request_id", None) not in new]


def test_a_trial_is_stopped_at_a_rung_where_it_is_not_among_the_best() -> None:
    """At a rung, a trial that is not among the best is stopped; before the first rung no trial is judged."""
    search, (first, second, third, *_) = start()

    assert report(search, second, 9.0, 4) == []
    assert report(search, first, 0.5, 16) == []
    assert report(search, second, 0.6, 16) == [Stop(second)]
    assert report(search, third, 0.5, 16) == [Stop(third)], "of equal ones the earlier is better"


def test_a_trial_that_is_displaced_from_the_best_is_stopped_between_rungs() -> None:
    """A trial is stopped between rungs when later trials displace it, unless it has already reached the next rung."""
    search, (first, second, third, fourth, *_) = start()
    report(search, first, 0.5, 16)
    report(search, second, 0.4, 16)

    assert search.on(ValidationCompleted(first, 0.1, 64)) == [], "it was stopped when the second one came"
    assert report(search, second, 0.3, 64) == []
    assert report(search, third, 0.2, 16) == [], "the second one has reached the next rung before"
    assert report(search, fourth, 0.1, 16) == [Stop(third)]


def test_one_report_may_pass_several_rungs_and_the_top_ends_a_trial() -> None:
    """A trial that validates rarely may pass several rungs with one report, and ends at the top rung."""
    search, (first, second, *_) = start()

    assert report(search, first, 0.5, 100) == []
    assert report(search, first, 0.4, 300) == [Stop(first)]
    assert report(search, second, 0.6, 100) == [Stop(second)]


def test_trials_are_compared_at_the_length_of_the_rung() -> None:
    """A late report does not profit from its longer training: the metric is interpolated."""
    search, (first, second, third, *_) = start()
    report(search, first, 0.50, 16)
    report(search, second, 0.90, 10)

    assert report(search, second, 0.30, 22) == [Stop(second)], "0.60 at 16"

    report(search, third, 0.60, 14)
    assert report(search, third, 0.20, 18) == [Stop(first)], "0.40 at 16"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_training_that_has_diverged_goes_nowhere(bad: float) -> None:
    """A trial whose metric is NaN or infinite is stopped, even if it is the first at a rung."""
    search, (first, *_) = start()
    assert report(search, first, bad, 16) == [Stop(first)]

    search, (first, *_) = start("promotion")
    assert report(search, first, bad, 16) == [Close(first)]


def test_larger_may_be_better() -> None:
    """With smaller_is_better=False, the trials with the larger metrics go on."""
    search, (first, second, third, *_) = start(smaller_is_better=False)
    report(search, first, 0.5, 16)

    assert report(search, second, 0.4, 16) == [Stop(second)]
    assert report(search, third, 0.6, 16) == [Stop(first)]


def test_failed_trials_count_as_the_worst_and_invalid_ones_not_at_all() -> None:
    """A rung counts failed trials as its worst ones, and does not count trials with invalid hyperparameters."""
    search, ids = start()
    for request_id in ids[:6]:
        search.on(TrialExitedEarly(request_id, ExitedReason.ERRORED))
    report(search, ids[6], 0.5, 16)
    assert report(search, ids[7], 0.6, 16) == [], "the second of eight"

    search, ids = start()
    for request_id in ids[:6]:
        report(search, request_id, 0.9, 16)
        search.on(TrialExitedEarly(request_id, ExitedReason.INVALID_HP))
    report(search, ids[6], 0.5, 16)
    assert report(search, ids[7], 0.6, 16) == [Stop(ids[7])], "the second of two"


def test_a_failed_trial_is_not_asked_to_stop() -> None:
    """A failed trial is not asked to stop, since it has no process any more."""
    search, (first, second, *_) = start()
    report(search, first, 0.5, 16)
    search.on(TrialExitedEarly(first, ExitedReason.ERRORED))

    assert report(search, second, 0.4, 16) == []


def test_a_trial_is_promoted_when_it_is_among_the_best_of_enough() -> None:
    """A trial is promoted once it is among the best of enough trials; the others stay paused and close at the end."""
    search, ids = start("promotion", max_trials=4)

    assert report(search, ids[0], 0.5, 16) == [Pause(ids[0])]
    assert report(search, ids[1], 0.4, 16) == [Pause(ids[1])]
    assert report(search, ids[2], 0.6, 16) == [Pause(ids[2])]
    assert report(search, ids[3], 0.7, 16) == [ValidateAfter(ids[1], 64), Pause(ids[3])]
    assert report(search, ids[1], 0.3, 64) == [Close(one) for one in (ids[0], ids[2], ids[3], ids[1])]
    assert [search.on(TrialClosed(one)) for one in ids] == [[], [], [], [Shutdown()]]


def test_a_paused_trial_that_is_canceled_makes_room_for_the_next_best() -> None:
    """When a paused trial is canceled, the next best one is promoted in its place."""
    search, ids = start("promotion", max_trials=4)
    report(search, ids[0], 0.1, 16)
    report(search, ids[1], 0.2, 16)

    search.on(TrialExitedEarly(ids[0], ExitedReason.USER_CANCELED))
    search.on(TrialClosed(ids[0]))
    report(search, ids[2], 0.3, 16)

    assert ValidateAfter(ids[1], 64) in report(search, ids[3], 0.4, 16)


@pytest.mark.parametrize("is_worse", [True, False])
def test_ten_trials_one_after_the_other(is_worse: bool) -> None:
    """Of ten successive trials, one reaches the top if each is worse than the last; all do if each is better."""
    numbers: dict[UUID, int] = {}

    def curve(create: Create, length: int) -> float:
        number = numbers.setdefault(create.request_id, len(numbers))
        return float(number if is_worse else -number)

    searcher = asha(num_rungs=3, divisor=3, max_time=900, max_trials=10, max_concurrent_trials=1)
    simulation = simulate(begin(searcher), curve, validations=range(100, 901, 100))

    assert Counter(trial.length for trial in simulation.trials) == ({100: 9, 900: 1} if is_worse else {900: 10})


@pytest.mark.parametrize("max_concurrent", [1, 16])
@pytest.mark.parametrize("form", ["stopping", "stop_once", "promotion"])
def test_64_trials_train_less_than_a_sixth_of_what_all_would(form: str, max_concurrent: int) -> None:
    """64 trials train less than a sixth of what all of them would in full, and the best one trains to the end."""
    simulation = simulate(begin(asha(form, max_concurrent_trials=max_concurrent)), validations=BATCHES)

    assert simulation.num_units <= 2500
    best = min(simulation.trials, key=lambda trial: synthetic_curve(trial.create, 256))
    assert best.length == 256


class Ranks:
    """Ranks trials at rungs in the plainest way."""

    def __init__(self, lengths: list[int], divisor: int) -> None:
        self.metrics: dict[int, list[tuple[float, int, UUID]]] = {length: [] for length in lengths}
        self.divisor = divisor

    def enter(self, request_id: UUID, metric: float, length: int) -> None:
        self.metrics[length].append((metric, len(self.metrics[length]), request_id))

    def is_among_best(self, request_id: UUID, length: int, at_least: int) -> bool:
        ranked = sorted(self.metrics[length])
        num_best = max(len(ranked) // self.divisor, at_least)
        return request_id in [one for *_, one in ranked[:num_best]]


@pytest.mark.parametrize("seed", range(5))
def test_promoted_are_exactly_the_best(seed: int) -> None:
    """Every promoted trial is among the best at that time, and at the end no trial that should be promoted is left."""
    lengths = [4, 16, 64, 256]
    watched = Watched(asha("promotion", max_concurrent_trials=7), seed)
    luck = random.Random(seed)
    simulate(watched, lambda create, length: round(luck.random(), 1), validations=BATCHES, num_slots=5)

    ranks = Ranks(lengths, 4)
    promoted = set()
    for event, operations in watched.log:
        if isinstance(event, ValidationCompleted):
            ranks.enter(event.request_id, event.value, int(event.length or 0))
        for operation in operations:
            if isinstance(operation, ValidateAfter) and operation.length > 4:
                below = lengths[lengths.index(operation.length) - 1]
                assert ranks.is_among_best(operation.request_id, below, 0)
                promoted.add((operation.request_id, below))
    for below in lengths[:-1]:
        num_best = len(ranks.metrics[below]) // 4
        assert {(one, below) for *_, one in sorted(ranks.metrics[below])[:num_best]} <= promoted


@pytest.mark.parametrize("seed", range(5))
def test_those_that_run_on_are_exactly_the_best(seed: int) -> None:
    """After every event, each trial between two rungs is among the best of the lower rung; stopped ones are not."""
    lengths = [4, 16, 64, 256]
    watched = Watched(asha(max_concurrent_trials=7), seed)
    luck = random.Random(seed)
    simulate(watched, lambda create, length: round(luck.random(), 1), validations=BATCHES, num_slots=5)

    ranks = Ranks(lengths, 4)
    rung_of: dict[UUID, int] = {}
    for event, operations in watched.log:
        if isinstance(event, ValidationCompleted) and event.length in lengths:
            ranks.enter(event.request_id, event.value, int(event.length))
            rung_of[event.request_id] = int(event.length)
        for operation in operations:
            if isinstance(operation, Stop):
                rung = rung_of.pop(operation.request_id)
                assert rung == 256 or not ranks.is_among_best(operation.request_id, rung, 1)
        assert all(ranks.is_among_best(request_id, rung, 1) for request_id, rung in rung_of.items())


@pytest.mark.parametrize("form", ["stopping", "promotion"])
def test_places_that_a_bracket_cannot_fill_go_to_others(form: str) -> None:
    """Trial slots that a bracket cannot fill go to other brackets, and no more trials run at once than the maximum."""
    watched = Watched(adaptive(form, max_trials=200, max_concurrent_trials=12))

    simulate(watched, validations=BATCHES)

    num_created = 0
    for event, operations in watched.log:
        num_created += len(ids_of(operations))
        if isinstance(event, TrialClosed) and num_created < 200:
            assert len(watched.active) <= 12
    assert num_created == 200


def test_a_trial_that_fails_is_never_promoted() -> None:
    """A failed trial is never promoted, even if too few other trials are left."""

    def curve(create: Create, length: int) -> float:
        if create.request_id.int % 8:
            raise TrialExit(ExitedReason.ERRORED)
        return 0.5

    watched = Watched(asha("promotion"), SEED)
    simulation = simulate(watched, curve, validations=BATCHES)

    assert simulation.shutdown == Shutdown()
    assert {trial.reason for trial in simulation.trials if trial.length > 4} == {None}
