"""Who gets slots: pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from core_sdk._execution.master._queue import Decisions, Demand, decide, levels, num_lacking, place_beside

A, B, C, D, E = (UUID(int=number) for number in range(1, 6))


def demand(
    experiment_id: int,
    waiting: Sequence[UUID] = (),
    running: Sequence[UUID] = (),
    *,
    priority: int = 42,
    slots: int = 1,
    max_slots: int | None = None,
    nodes: Sequence[str] = "",
    unplaced: Sequence[UUID] = (),
    stopping: Sequence[UUID] = (),
    num_nodes: int = 1,
    place: float | None = None,
) -> Demand:
    """`nodes` has a letter for each node of each trial that runs; without it all run on node "a"."""
    nodes_of = dict(zip(running, nodes or "a" * len(running), strict=True))
    is_stopping = frozenset(stopping)
    place = float(experiment_id) if place is None else place
    counts = priority, slots, max_slots, waiting, running, nodes_of, unplaced, is_stopping, num_nodes, place
    return Demand(experiment_id, *counts)


def test_the_older_of_two_experiments_comes_first() -> None:
    """The older of two experiments gets slots first."""
    decisions = decide([demand(2, [C]), demand(1, [A, B])], rooms={"a": 2})

    assert decisions == Decisions(start=[(1, A), (1, B)], blocked=(2, C))


def test_a_smaller_priority_comes_first() -> None:
    """An experiment with a smaller priority number gets slots first, even if it is younger."""
    decisions = decide([demand(1, [A]), demand(2, [B], priority=1)], rooms={"a": 1})

    assert decisions == Decisions(start=[(2, B)], blocked=(1, A))


def test_an_experiment_gets_no_more_than_its_maximum() -> None:
    """An experiment gets at most max_slots, and others get the rest."""
    decisions = decide([demand(1, [A, B], max_slots=1), demand(2, [C])], rooms={"a": 4})

    assert decisions == Decisions(start=[(1, A), (2, C)])


def test_the_youngest_trials_above_a_lowered_maximum_are_stopped() -> None:
    """When max_slots is lowered, the youngest running trials are stopped."""
    decisions = decide(
        [demand(1, [], [A, B, C, D], max_slots=5, slots=2, stopping=[B]), demand(2, [E])], rooms={"a": 8}
    )

    assert decisions == Decisions(excess=[(1, D)])


def test_a_large_trial_is_not_overtaken_for_ever() -> None:
    """Free slots are kept for a large trial that waits, so that small ones do not overtake it."""
    decisions = decide([demand(1, [], [A]), demand(2, [B], slots=2), demand(3, [C])], rooms={"a": 2})

    assert decisions == Decisions(blocked=(2, B))


def test_what_others_have_is_not_free() -> None:
    """Slots that others have are free for nobody here, but count for what a machine can ever give."""
    large = demand(1, [A], slots=3)

    assert decide([large], rooms={"a": 4}, foreign={"a": 2}) == Decisions(blocked=(1, A))
    assert decide([demand(2, [B])], rooms={"a": 4}, foreign={"a": 2}) == Decisions(start=[(2, B)])
    assert decide([large, demand(2, [], [B, C], priority=50)], rooms={"a": 4}, foreign={"a": 2}) == Decisions(
        blocked=(1, A)
    )
    assert decide([large, demand(2, [], [B, C], priority=50)], rooms={"a": 4}, foreign={"a": 1}) == Decisions(
        blocked=(1, A), preempt=[(2, C), (2, B)]
    )


def test_a_trial_that_this_machine_cannot_hold_does_not_block_others() -> None:
    """A trial that needs more slots than exist does not block others."""
    decisions = decide([demand(1, [A], slots=8), demand(2, [B])], rooms={"a": 2})

    assert decisions == Decisions(start=[(2, B)], scattered={1: 2})


def test_trials_of_less_important_experiments_are_stopped_for_a_more_important_one() -> None:
    """For a more important experiment only as many trials are stopped as are needed, the youngest first."""
    decisions = decide([demand(1, [], [A, B, C]), demand(2, [D], priority=1)], rooms={"a": 3})

    assert decisions == Decisions(preempt=[(1, C)], blocked=(2, D))


def test_what_is_being_stopped_is_not_stopped_again() -> None:
    """No further trial is stopped if one that is stopping frees enough slots."""
    decisions = decide([demand(1, [], [A, B], stopping=[B]), demand(2, [C], priority=1)], rooms={"a": 2})

    assert decisions == Decisions(blocked=(2, C))


def test_nothing_is_stopped_in_vain() -> None:
    """No trial is stopped if that would not free enough slots."""
    decisions = decide(
        [demand(1, [], [A]), demand(2, [], [B, C], priority=1), demand(3, [D], slots=3, priority=1)], rooms={"a": 3}
    )

    assert decisions == Decisions(blocked=(3, D))


def test_trials_without_slots_do_not_wait_for_any() -> None:
    """Trials without slots start at once, up to a limit for the machine."""
    many = [UUID(int=number) for number in range(1000)]

    decisions = decide([demand(1, [], [A]), demand(2, many, slots=0)], rooms={"a": 1})

    assert len(decisions.start) == 100


def test_a_trial_begins_only_if_one_node_has_all_its_slots() -> None:
    """A trial begins only if one node has all its slots; otherwise free slots are kept for it."""
    running = demand(1, [], [A, B], nodes="ab")

    assert decide([running, demand(2, [C], slots=2), demand(3, [D])], {"a": 2, "b": 2}) == Decisions(
        scattered={2: 1}, blocked=(2, C)
    )
    assert decide([running, demand(2, [C], slots=2), demand(3, [D])], {"a": 2, "b": 3}) == Decisions(
        start=[(2, C), (3, D)]
    )
    assert decide([running, demand(2, [C], slots=2)], {"a": 2, "b": 1}) == Decisions(blocked=(2, C))


def test_small_trials_leave_large_nodes_to_large_ones() -> None:
    """Small trials are placed on the fullest node, so that large ones find room."""
    decisions = decide([demand(1, [A]), demand(2, [B], slots=4)], {"a": 4, "b": 1})

    assert decisions == Decisions(start=[(1, A), (2, B)])


def test_trials_are_stopped_on_one_node() -> None:
    """Trials are stopped on the node where the fewest need to be, and only if it helps."""
    busy = demand(1, [], [A, B, C], nodes="aab")

    assert decide([busy, demand(2, [D], slots=2, priority=1)], {"a": 2, "b": 2}).preempt == [(1, C)]
    assert decide([busy, demand(2, [D], slots=2, priority=1)], {"a": 2, "b": 1}).preempt == [(1, B), (1, A)]


def test_a_trial_that_found_no_node_waits_again() -> None:
    """A trial that found no node waits again and may be withdrawn."""
    placing = demand(1, [], unplaced=[A], slots=2)

    assert decide([placing, demand(2, [C])], {"a": 2, "b": 1}) == Decisions(start=[(2, C)])
    assert decide([placing, demand(2, [C], [B])], {"a": 2, "b": 1}) == Decisions(withdraw=[(1, A)])


def test_a_trial_on_a_node_that_is_gone_takes_no_slots() -> None:
    """A trial on a node that is gone occupies no slots."""
    assert decide([demand(1, [B], [A], nodes="b")], {"a": 1}) == Decisions(start=[(1, B)])


def test_a_trial_on_several_nodes_gets_all_of_them_or_none() -> None:
    """A trial over two nodes begins when both have its share free, and nothing smaller overtakes it meanwhile."""
    large = demand(1, [A, B], slots=4, num_nodes=2)

    assert decide([large, demand(2, [C])], rooms={"a": 2, "b": 2, "c": 3}) == Decisions(
        start=[(1, A)], blocked=(1, B), scattered={}
    )
    waits = decide([large, demand(2, [C])], rooms={"a": 2, "b": 3}, foreign={"a": 1})
    assert waits == Decisions(blocked=(1, A), scattered={1: 1})
    assert large.describe_scattered(1) == (
        "a trial waits for 2 nodes with 2 free slots each, and no 2 nodes have more than 1 each"
    )
    assert decide([large], rooms={"a": 9}) == Decisions(scattered={1: 0})


def test_trials_are_stopped_on_as_many_nodes_as_a_trial_takes() -> None:
    """Trials are stopped on enough nodes, and one that has slots on both is stopped once."""
    urgent = demand(1, [A], slots=4, num_nodes=2, priority=1)

    over_two = decide([urgent, demand(2, [], [B], slots=4, nodes=["ab"])], rooms={"a": 2, "b": 2})
    on_each = decide([urgent, demand(2, [], [B, C, D], slots=2, nodes="abc")], rooms={"a": 2, "b": 2, "c": 4})

    assert over_two == Decisions(blocked=(1, A), preempt=[(2, B)])
    assert on_each == Decisions(blocked=(1, A), preempt=[(2, B)])
    assert decide([urgent, demand(2, [], [B], nodes="a")], rooms={"a": 1, "b": 2}) == Decisions(scattered={1: 1})


def test_an_experiment_is_moved_between_its_new_neighbours() -> None:
    """A place is halfway to the next experiment on that side, or one step beyond the last."""
    assert place_beside(2.0, [1.0, 2.0, 3.0], is_behind=True) == 2.5
    assert place_beside(2.0, [1.0, 2.0, 3.0], is_behind=False) == 1.5
    assert (place_beside(2.0, [2.0], is_behind=True), place_beside(2.0, [], is_behind=False)) == (3.0, 1.0)


def test_the_place_decides_among_equal_priorities() -> None:
    """A moved experiment is served at its place, and other queues get the order of experiments as steps."""
    old, young, moved, last = demand(1, [A]), demand(2, [B]), demand(2, [B], place=0.5), demand(3, [C], priority=50)

    assert decide([old, young], {"a": 1}).start == [(1, A)]
    assert decide([old, moved], {"a": 1}).start == [(2, B)]
    assert levels([old, young, last]) == {1: 0, 2: 0, 3: 1}
    assert levels([old, moved, last]) == {1: 1, 2: 0, 3: 2}


def test_trials_begin_only_on_nodes_that_fit() -> None:
    """A trial waits for room on the nodes that it asks for, and is counted as one that waits."""
    picky = replace(demand(1, [A, B, C], max_slots=2), usable={"b"})

    decisions = decide([picky], rooms={"a": 8, "b": 1})

    assert decisions == Decisions(start=[(1, A)], blocked=(1, B))
    assert num_lacking([picky, demand(2, [D], slots=0)], decisions) == {1: 1}
