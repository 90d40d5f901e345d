"""What holds for every search."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

import pytest
from search.searches import ALL, Restarted, Watched, adaptive, asha, begin

from core_sdk._ground.config.hyperparameters import Const, HyperparameterSpace
from core_sdk._ground.config.searchers import RandomSearcher, SearcherConfig, SingleSearcher
from core_sdk.search import (
    Close,
    Create,
    Event,
    ExitedReason,
    Search,
    SearchStarted,
    Shutdown,
    Stop,
    TrialClosed,
    TrialExitedEarly,
    TrialProgressed,
    ValidateAfter,
    ValidationCompleted,
    Warn,
)
from core_sdk.search.simulation import TrialExit, simulate, synthetic_curve

VALIDATIONS = range(4, 257, 4)
every_search = pytest.mark.parametrize("searcher", ALL.values(), ids=ALL.keys())


def troubled_curve(create: Create, length: int) -> float:
    """Some trials fail, some are canceled, some cannot be trained, some diverge; some are equal to others."""
    luck = random.Random(create.request_id.int)
    fate, at = luck.random(), luck.choice([4, 8, 40, 128])
    if length >= at:
        if fate < 0.1:
            raise TrialExit(ExitedReason.ERRORED)
        if fate < 0.15:
            raise TrialExit(ExitedReason.USER_CANCELED)
        if fate < 0.25:
            raise TrialExit(ExitedReason.INVALID_HP)
        if fate < 0.35:
            return math.nan
    return round(synthetic_curve(create, length), 1) + luck.choice([0.0, 0.01])


@every_search
@pytest.mark.parametrize("num_slots", [1, 3, None])
def test_every_search_ends_with_all_its_trials(searcher: SearcherConfig, num_slots: int | None) -> None:
    """Every search ends with all its trials and none left over, and asks for each request id once."""
    watched = Watched(searcher)

    simulation = simulate(watched, validations=VALIDATIONS, num_slots=num_slots)

    assert simulation.shutdown == Shutdown()
    assert len(simulation.trials) == watched.search.max_trials
    assert len({create.request_id for create in watched.created}) == len(watched.created)
    assert watched.search.progress == 1
    assert not simulation.warnings


@every_search
@pytest.mark.parametrize("seed", range(5))
def test_a_search_ends_also_in_trouble(searcher: SearcherConfig, seed: int) -> None:
    """A search ends also when trials fail; failed trials count, and those with invalid hyperparameters do not."""
    watched = Watched(searcher, seed)

    simulation = simulate(watched, troubled_curve, validations=VALIDATIONS, num_slots=3)

    num_invalid = sum(trial.reason is ExitedReason.INVALID_HP for trial in simulation.trials)
    assert simulation.shutdown is not None
    assert len(simulation.trials) - num_invalid <= watched.search.max_trials
    assert not watched.active


@every_search
def test_a_search_that_is_restarted_after_every_event_decides_the_same(searcher: SearcherConfig) -> None:
    """A search that is restored from its JSON state after every event decides the same as an undisturbed one."""
    undisturbed = Watched(searcher)
    simulate(undisturbed, troubled_curve, validations=VALIDATIONS, num_slots=3)
    restarted = Restarted(searcher)

    for event, operations in undisturbed.log:
        assert restarted.on(event) == operations


@every_search
def test_the_same_events_get_the_same_answers(searcher: SearcherConfig) -> None:
    """A search gives the same answers to the same events, so that a driver may continue by replaying them."""
    first = Watched(searcher)
    simulate(first, troubled_curve, validations=VALIDATIONS, num_slots=3)
    second = begin(searcher)

    assert [second.on(event) for event, _ in first.log] == [operations for _, operations in first.log]


@every_search
@pytest.mark.parametrize("seed", range(3))
def test_trials_may_report_in_any_order(searcher: SearcherConfig, seed: int) -> None:
    """A search completes all its trials when they run at random speeds and their events overtake each other."""
    watched = Watched(searcher)

    shutdown = drive_at_random(watched, random.Random(seed))

    assert shutdown == Shutdown()
    assert len(watched.created) == watched.search.max_trials
    assert not watched.active


@every_search
def test_what_comes_twice_or_too_late_changes_nothing(searcher: SearcherConfig) -> None:
    """Events that come twice or after a trial's end change nothing."""
    alone, disturbed = Watched(searcher), begin(searcher)
    simulate(alone, validations=VALIDATIONS, num_slots=3)
    ended: list[UUID] = []

    for event, operations in alone.log:
        for late in ended[-3:]:
            assert disturbed.on(ValidationCompleted(late, 0.0, 256)) == []
            assert disturbed.on(TrialExitedEarly(late, ExitedReason.ERRORED)) == []
            assert disturbed.on(TrialClosed(late)) == []
        assert disturbed.on(event) == operations
        if isinstance(event, TrialClosed):
            ended.append(event.request_id)


def test_a_stopped_trial_is_heard_no_more_before_it_has_ended() -> None:
    """Reports of a stopped trial are ignored until it closes, and then a new trial replaces it."""
    search = begin(asha(max_concurrent_trials=5))
    good, *bad = [one.request_id for one in search.on(SearchStarted()) if isinstance(one, Create)]
    search.on(ValidationCompleted(good, 0.1, 4))

    assert search.on(ValidationCompleted(bad[0], 0.9, 4)) == [Stop(bad[0])]
    assert search.on(ValidationCompleted(bad[0], 0.0, 8)) == []
    (replacement,) = search.on(TrialClosed(bad[0]))

    assert isinstance(replacement, Create)


def test_a_trial_that_ends_by_itself_below_the_top_is_replaced() -> None:
    """A trial that ends by itself below the top is replaced, and the user is warned once."""
    watched = Watched(asha())

    simulation = simulate(watched, validations=[4, 8])

    assert len(simulation.trials) == 64
    assert [warning.kind for warning in simulation.warnings] == ["ended_early"]
    assert "before 16" in simulation.warnings[0].message


def test_hyperparameters_that_cannot_be_trained_are_not_replaced_for_ever() -> None:
    """A search stops replacing invalid hyperparameters after a limit, and fails if the whole space is invalid."""

    def always_invalid(create: Create, length: int) -> float:
        raise TrialExit(ExitedReason.INVALID_HP)

    for searcher, num_trials in [
        (RandomSearcher(metric="loss", max_trials=4), 14),
        (RandomSearcher(metric="loss", max_trials=30), 60),
        (ALL["grid"], 12),
        (ALL["single"], 11),
        (asha(), 128),
    ]:
        simulation = simulate(begin(searcher), always_invalid, validations=[4])

        assert len(simulation.trials) == num_trials
        assert simulation.shutdown == Shutdown(failure=True)


def test_a_point_that_is_always_the_same_is_not_tried_again() -> None:
    """A single trial without ranges is not tried again after INVALID_HP, since its point would be the same."""
    search = Search(SingleSearcher(metric="loss"), HyperparameterSpace({"lr": Const(0.1)}), 0)
    (create,) = search.on(SearchStarted())
    assert isinstance(create, Create)

    search.on(TrialExitedEarly(create.request_id, ExitedReason.INVALID_HP))

    assert search.on(TrialClosed(create.request_id)) == [Shutdown(failure=True)]


@pytest.mark.parametrize(
    ("reasons", "shutdown"),
    [
        ([None, ExitedReason.ERRORED], Shutdown()),
        ([None, ExitedReason.USER_CANCELED], Shutdown()),
        ([ExitedReason.ERRORED] * 2, Shutdown(failure=True)),
        ([ExitedReason.USER_CANCELED] * 2, Shutdown(cancel=True)),
        ([ExitedReason.USER_CANCELED, ExitedReason.ERRORED], Shutdown(failure=True)),
    ],
)
def test_one_good_trial_completes_a_search(reasons: list[ExitedReason | None], shutdown: Shutdown) -> None:
    """A search completes with one good trial; it fails if none is good, and is canceled if all are canceled."""
    search = begin(RandomSearcher(metric="loss", max_trials=2))
    ids = [one.request_id for one in search.on(SearchStarted()) if isinstance(one, Create)]

    answers = []
    for request_id, reason in zip(ids, reasons, strict=True):
        if reason is not None:
            answers += search.on(TrialExitedEarly(request_id, reason))
        answers += search.on(TrialClosed(request_id))

    assert answers == [shutdown]


def test_progress_is_the_part_of_trials_that_is_done() -> None:
    """Progress is the part of the trials that is done; running trials count by their own progress."""
    search = begin(RandomSearcher(metric="loss", max_trials=4))
    ids = [one.request_id for one in search.on(SearchStarted()) if isinstance(one, Create)]

    search.on(TrialClosed(ids[0]))
    search.on(TrialProgressed(ids[1], 0.5))

    assert search.progress == pytest.approx(1.5 / 4)


def test_a_metric_that_is_never_reported_is_named_with_those_that_are() -> None:
    """If the metric is missing in the first report, one warning names it and the metrics that are reported."""
    search = begin(asha())
    first, second = [one.request_id for one in search.on(SearchStarted()) if isinstance(one, Create)][:2]

    answer = search.on(search.read_report(first, {"accuracy": 0.5, "batches": 4}))

    (warning,) = answer
    assert isinstance(warning, Warn)
    assert warning.kind == "metric_missing"
    assert "accuracy, batches" in warning.message
    assert "'loss'" in warning.message
    assert search.on(search.read_report(second, {"accuracy": 0.5, "batches": 4})) == []


@pytest.mark.parametrize(
    ("length", "kind"), [(None, "time_missing"), (math.nan, "time_missing"), (4, "time_not_growing")]
)
def test_a_time_metric_that_says_nothing_is_told(length: float | None, kind: str) -> None:
    """A time metric that is missing, NaN or not growing is warned about, since such trials would run for ever."""
    search = begin(asha())
    first = next(one.request_id for one in search.on(SearchStarted()) if isinstance(one, Create))
    search.on(search.read_report(first, {"loss": 0.5, "batches": 4}))

    answer = search.on(search.read_report(first, {"loss": 0.5} | ({} if length is None else {"batches": length})))

    assert [one.kind for one in answer if isinstance(one, Warn)] == [kind]


def test_a_validation_before_the_training_is_no_mistake() -> None:
    """A validation before the training, at length 0, is neither compared nor warned about."""
    search = begin(asha())
    first = next(one.request_id for one in search.on(SearchStarted()) if isinstance(one, Create))

    assert [search.on(search.read_report(first, {"loss": 0.5, "batches": batches})) for batches in (0, 1)] == [[], []]


def test_seeds_of_trials_are_small_and_differ() -> None:
    """Trial seeds differ, and are below 2**31, which random generators take."""
    watched = Watched(adaptive())
    simulate(watched, validations=VALIDATIONS)

    seeds = Counter(create.trial_seed for create in watched.created)
    assert max(seeds.values()) == 1
    assert all(0 <= seed < 2**31 for seed in seeds)


@dataclass
class Training:
    """A trial whose speed is chance's."""

    length: int = 0
    ordered: int | None = None
    is_ending: bool = False

    def next_event(self, request_id: UUID, luck: random.Random) -> Event | None:
        """Returns the next event of a trial; None for one that is paused."""
        if self.ordered is None:
            if self.is_ending or self.length >= 256:
                return TrialClosed(request_id)
            self.length += luck.randint(1, 64)
        elif self.length < self.ordered:
            self.length = self.ordered
        else:
            return TrialClosed(request_id) if self.is_ending else None
        return ValidationCompleted(request_id, luck.random(), self.length)


def drive_at_random(watched: Watched, luck: random.Random) -> Shutdown | None:
    """Runs a search to its end; each trial reports at lengths, and in an order, that chance decides."""
    trainings: dict[UUID, Training] = {}
    events: list[Event | None] = [SearchStarted()]
    shutdown = None
    while events:
        for operation in watched.on(event) if (event := events.pop()) else ():
            match operation:
                case Create(request_id):
                    trainings[request_id] = Training()
                case ValidateAfter(request_id, length):
                    trainings[request_id].ordered = length
                case Close(request_id):
                    trainings[request_id].is_ending = True
                case Stop(request_id):
                    trainings[request_id] = Training(is_ending=True)
                case Shutdown():
                    shutdown = operation
        if isinstance(event, TrialClosed):
            del trainings[event.request_id]
        if trainings:
            request_id = luck.choice(list(trainings))
            events.append(trainings[request_id].next_event(request_id, luck))
    return shutdown
