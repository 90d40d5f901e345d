"""Ranks are named as late by what they answer."""

from __future__ import annotations

import pytest

from core_sdk._distributed.calls._late_ranks import late_ranks
from core_sdk._distributed.transport._messages import Status

ASKER = 2


def inside(number: int) -> Status:
    return Status(ASKER, 1, 0, number, f"call {number}", is_inside=True)


def after(number: int) -> Status:
    return Status(ASKER, 1, 0, number, f"call {number}", is_inside=False)


@pytest.mark.parametrize(
    ("answers", "late"),
    [
        ({0: inside(5), 1: after(4)}, [1]),
        ({0: inside(5)}, [1]),
        ({0: inside(4), 1: after(4)}, [1]),
        ({0: inside(4)}, [1]),
        ({0: inside(4), 1: inside(4)}, [0, 1]),
        ({0: after(4), 1: inside(5)}, [0]),
        ({0: after(4), 1: after(4)}, [0, 1]),
        ({0: inside(5), 1: inside(5)}, []),
        ({}, [0, 1]),
    ],
    ids=[
        "a rank computes",
        "a rank does not answer",
        "the chief delivers an earlier call to a rank that computes",
        "the chief delivers an earlier call to a rank that does not answer",
        "the chief delivers an earlier call to a rank that reads it",
        "the chief computes",
        "two ranks compute",
        "all are in the call",
        "no rank answers",
    ],
)
def test_a_rank_that_waits_for_another_one_is_not_late(answers: dict[int, Status], late: list[int]) -> None:
    """Of three ranks, rank 2 asks in call 5 who is late."""
    assert late_ranks(answers, 3, 5, ASKER) == late
