"""A home with trials of every kind, and a visitor who asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from home.journals import new_trial, record, report, started, stored
from interfaces.server.visitor import Visitor

from core_sdk._ground.records import Ended
from core_sdk._home import Home, TrialFolder

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\"'&"


@pytest.fixture
def trials(home: Home) -> list[TrialFolder]:
    """1: two attempts, of which the second supersedes a part of the first. 2: a hostile name. 3: output."""
    first = new_trial(home, lr=0.1, model={"layers": 2})
    record(first, *(report(step, loss=1 / (step + 1)) for step in range(100)), stored("c1", 40), attempt=1)
    again = [report(step, attempt=2, loss=0.5 / (step + 1)) for step in range(41, 60)]
    record(first, *again, Ended(time=started(first, 2).time + 90, outcome="completed"), attempt=2, resumed_steps=40)
    second = new_trial(home, HOSTILE, lr=0.01, note=HOSTILE)
    record(second, report(1, "validation", accuracy="NaN", loss="Infinity"))
    third = new_trial(home, lr=0.001)
    record(third, report(1, loss=2.0))
    third.log_path(1).write_bytes(b"".join(b"[rank=%d] INFO: line %d\n" % (one % 2, one) for one in range(1000)))
    return [first, second, third]


@pytest.fixture
def visitor(home: Home, trials: list[TrialFolder]) -> Iterator[Visitor]:
    opened = Visitor(home)
    yield opened
    opened.close()
