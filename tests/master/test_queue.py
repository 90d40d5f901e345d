"""Who gets slots: pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from core_sdk.master._queue import Decisions, Demand, decide

A, B, C, D, E = (UUID(int=number) for number in range(1, 6))


def demand(
    experiment_id: int,
    waiting: Sequence[UUID] = (),
    running: Sequence[UUID] = (),
    *,
    priority: int = 42,
    slots: int = 1,
    max_slots: int | None = None,
    stopping: Sequence[UUID] = (),
) -> Demand:
    return Demand(experiment_id, priority, slots, max_slots, waiting, running, frozenset(stopping))


def test_the_older_of_two_experiments_comes_first() -> None:
    """Slots are given out in order, until none is left."""
    assert decide([demand(2, [C]), demand(1, [A, B])], num_slots=2) == Decisions(start=[(1, A), (1, B)])


def test_a_smaller_priority_comes_first() -> None:
    """Whatever is older."""
    assert decide([demand(1, [A]), demand(2, [B], priority=1)], num_slots=1) == Decisions(start=[(2, B)])


def test_an_experiment_gets_no_more_than_its_maximum() -> None:
    """Others get the rest."""
    decisions = decide([demand(1, [A, B], max_slots=1), demand(2, [C])], num_slots=4)

    assert decisions == Decisions(start=[(1, A), (2, C)])


def test_the_youngest_trials_above_a_lowered_maximum_are_stopped() -> None:
    """Those that stop already do not stop again, and count for nothing."""
    decisions = decide([demand(1, [], [A, B, C, D], max_slots=5, slots=2, stopping=[B]), demand(2, [E])], num_slots=8)

    assert decisions == Decisions(excess=[(1, D)])


def test_a_large_trial_is_not_overtaken_for_ever() -> None:
    """What becomes free is kept for it."""
    decisions = decide([demand(1, [], [A]), demand(2, [B], slots=2), demand(3, [C])], num_slots=2)

    assert decisions == Decisions()


def test_a_trial_that_this_machine_cannot_hold_does_not_block_others() -> None:
    """It waits for ever, and says so elsewhere."""
    assert decide([demand(1, [A], slots=8), demand(2, [B])], num_slots=2) == Decisions(start=[(2, B)])


def test_trials_of_less_important_experiments_are_stopped_for_a_more_important_one() -> None:
    """The youngest first, and no more than are needed."""
    decisions = decide([demand(1, [], [A, B, C]), demand(2, [D], priority=1)], num_slots=3)

    assert decisions == Decisions(preempt=[(1, C)])


def test_what_is_being_stopped_is_not_stopped_again() -> None:
    """Its slot will do."""
    decisions = decide([demand(1, [], [A, B], stopping=[B]), demand(2, [C], priority=1)], num_slots=2)

    assert decisions == Decisions()


def test_nothing_is_stopped_in_vain() -> None:
    """Unless it frees enough slots."""
    decisions = decide(
        [demand(1, [], [A]), demand(2, [], [B, C], priority=1), demand(3, [D], slots=3, priority=1)], num_slots=3
    )

    assert decisions == Decisions()


def test_trials_without_slots_do_not_wait_for_any() -> None:
    """But a machine has its limits."""
    many = [UUID(int=number) for number in range(1000)]

    decisions = decide([demand(1, [], [A]), demand(2, many, slots=0)], num_slots=1)

    assert len(decisions.start) == 100
