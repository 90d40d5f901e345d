"""The history of a study has the tree of its tries, and the best over time."""

from __future__ import annotations

from analysis.studies.test_board import board_of
from home.tries import study, trials_of_try

from core_sdk._analysis.studies._history import best_curve, best_over_time, tree_of

TRIES = (
    trials_of_try(1, [0.80, 0.81, 0.82], ended=10.0),
    trials_of_try(4, [0.88, 0.89, 0.90], parent=1, verdict="keep", ended=30.0),
    trials_of_try(7, [0.85, 0.85, 0.86], parent=1, ended=20.0),
    trials_of_try(10, [0.99, 0.98, 0.99], parent=4, verdict="discard", ended=40.0),
    trials_of_try(13, [0.87, 0.87, 0.86], parent=4, ended=50.0),
)


def test_the_tree_has_each_try_before_those_that_vary_it() -> None:
    """A try stands below its parent, in the order of the numbers."""
    board = board_of(study(*TRIES))

    assert [(depth, one.try_id) for depth, one in tree_of(board.tries)] == [(0, 1), (1, 4), (2, 10), (2, 13), (1, 7)]


def test_the_best_over_time_is_the_one_that_had_ended_by_then() -> None:
    """What was discarded never counts, and a try counts from its end."""
    board = board_of(study(*TRIES))

    curve = best_curve(board)

    assert [one.try_id for one in best_over_time(board)] == [1, 7, 4]
    assert [(seconds, round(value, 3)) for seconds, value in curve] == [
        (10.0, 0.81),
        (20.0, 0.81),
        (20.0, 0.853),
        (30.0, 0.853),
        (30.0, 0.89),
        (50.0, 0.89),
    ]
