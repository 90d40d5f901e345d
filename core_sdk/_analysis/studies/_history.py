"""A study as it went: the best value over time, and the tree of what was varied. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from core_sdk._analysis.studies._board import Board, BoardLine


def ends(board: Board) -> list[tuple[float, float]]:
    """Returns when the tries that have a value ended, in seconds since the first one was begun, with their values."""
    began = min((one.created for one in board.tries), default=0.0)
    return [(one.ended - began, one.value) for one in board.tries if one.ended is not None and one.value is not None]


def best_over_time(board: Board) -> list[BoardLine]:
    """Returns the tries that were the best when they ended, in that order, of those that nobody has discarded."""
    ended = [one for one in board.tries if one.state == "ended" and one.ended is not None and one.verdict != "discard"]
    found: list[BoardLine] = []
    for one in sorted(ended, key=lambda one: (one.ended or 0.0, one.try_id)):
        if one.value is not None and (not found or _is_better(one.value, found[-1].value or 0.0, board)):
            found.append(one)
    return found


def best_curve(board: Board) -> list[tuple[float, float]]:
    """Returns the best value over the seconds since the first try was begun, as the corners of its steps.

    It is empty if there was no best try.
    """
    began = min((one.created for one in board.tries), default=0.0)
    curve: list[tuple[float, float]] = []
    for one in best_over_time(board):
        if one.ended is not None and one.value is not None:
            curve += [(one.ended - began, value) for value in (*(each[1] for each in curve[-1:]), one.value)]
    last = max((seconds for seconds, _ in ends(board)), default=0.0)
    return [*curve, (last, curve[-1][1])] if curve else []


def tree_of(tries: Sequence[BoardLine]) -> Iterator[tuple[int, BoardLine]]:
    """Yields the tries with their depths, each one before those that vary it."""
    by_id = {one.try_id: one for one in tries}
    children: dict[int | None, list[BoardLine]] = defaultdict(list)
    for one in tries:
        children[one.parent if one.parent in by_id and one.parent != one.try_id else None].append(one)
    pending = [(0, one) for one in reversed(children[None])]
    while pending:
        depth, one = pending.pop()
        yield depth, one
        pending += [(depth + 1, each) for each in reversed(children[one.try_id])]


def _is_better(value: float, other: float, board: Board) -> bool:
    return value < other if board.smaller_is_better else value > other
