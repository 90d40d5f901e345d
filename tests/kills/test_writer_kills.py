"""`kill -9` of a trial's own program and of writers that evaluate its checkpoints meanwhile."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import wait_for

from core_sdk.journal import read_records
from core_sdk.records import AttemptStarted
from core_sdk.tracking import Home, open_view
from core_sdk.tracking.history import read_history

NAMES = ("trainer", "first", "second", "third", "fourth")
Report = tuple[int, int, int]
"""Attempt, step and value; values rise with time, and each is of one report."""


@pytest.fixture
def acknowledged(tmp_path: Path) -> Path:
    os.environ["CORE_SDK_QUIET"] = "1"
    return tmp_path / "acknowledged"


class Programs:
    """The trainer and four writers, each of which is started again when it is killed."""

    def __init__(self, acknowledged: Path) -> None:
        self._acknowledged = acknowledged
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._num_acknowledged = Counter[str]()

    def start(self, name: str) -> None:
        argv = [sys.executable, str(Path(__file__).parent / "writing.py"), name, str(self._acknowledged)]
        self._running[name] = subprocess.Popen(argv, stderr=subprocess.PIPE)

    def await_reports(self, name: str, count: int) -> None:
        """Blocks until this process has reported more than `count` times."""
        before = self._num_acknowledged[name]
        wait_for(lambda: self._has_died(name) or len(read_acknowledged(self._acknowledged)[name]) > before + count)

    def kill(self, name: str) -> None:
        assert not self._has_died(name), self._running.pop(name).communicate()[1].decode()
        process = self._running.pop(name)
        process.kill()
        process.communicate()
        self._num_acknowledged[name] = len(read_acknowledged(self._acknowledged)[name])

    def _has_died(self, name: str) -> bool:
        return self._running[name].poll() is not None

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)


@pytest.fixture
def programs(acknowledged: Path) -> Iterator[Programs]:
    programs = Programs(acknowledged)
    yield programs
    programs.close()


def read_acknowledged(path: Path) -> dict[str, list[Report]]:
    found: dict[str, list[Report]] = {name: [] for name in NAMES}
    for line in path.read_text().splitlines() if path.exists() else ():
        name, *numbers = line.split()
        attempt, step, value = map(int, numbers)
        found[name].append((attempt, step, value))
    return found


def visible(reports: list[Report], resumed: dict[int, int]) -> dict[int, int]:
    """The value at each step that the rule shows: that of the newest attempt that no later one has superseded there."""
    kept = [one for one in reports if all(one[1] <= steps for later, steps in resumed.items() if later > one[0])]
    return {step: value for _, step, value in sorted(kept, key=lambda one: (one[0], one[2]))}


@pytest.mark.parametrize("num_kills", [12, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_no_kill_of_a_writer_or_of_the_trainer_loses_or_doubles_a_report(
    home: Home, acknowledged: Path, programs: Programs, num_kills: int
) -> None:
    """All acknowledged reports are there once, and those are visible whose checkpoint's step is."""
    chance, killed = random.Random(num_kills), Counter[str]()
    programs.start("trainer")
    wait_for(lambda: home.folder(1).exists() and len(read_history(home.folder(1)).checkpoints) > 1)
    for name in NAMES[1:]:
        programs.start(name)
    for number in range(num_kills):
        name = "trainer" if number % 5 == 0 else chance.choice(NAMES[1:])
        programs.await_reports(name, chance.randrange(20))
        programs.kill(name)
        killed[name] += 1
        programs.start(name)
    programs.close()
    killed.update(NAMES)

    folder = home.trial(1)
    starts = [next(iter(read_records(folder.journal_path(attempt)))) for attempt in folder.attempts()]
    resumed = {start.attempt: start.resumed_steps for start in starts if isinstance(start, AttemptStarted)}
    assert len([steps for steps in resumed.values() if steps > 0]) >= num_kills // 6, "it went on from checkpoints"
    with open_view(home) as view:
        for name, told in read_acknowledged(acknowledged).items():
            rows = list(view.reports(1, rank=0 if name == "trainer" else name, superseded=True))
            recorded = [(row.attempt, row.steps_completed or 0, row.metrics["value"]) for row in rows]
            assert len(recorded) == len(set(recorded)), "none is doubled"
            assert set(told) <= set(recorded), "none is lost"
            assert len(recorded) - len(told) <= killed[name], "at most the last one of each life was not acknowledged"
            shown = {row.steps_completed: row.metrics["value"] for row in rows if not row.is_superseded}
            assert shown == visible(recorded, resumed)
