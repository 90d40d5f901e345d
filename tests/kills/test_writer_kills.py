"""`kill -9` of a trial's own program and of writers that evaluate its checkpoints meanwhile, on one machine or two."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hosts.hosts import host_group
from parts import needs
from processes import wait_for

from core_sdk._execution.steering import checkpoints
from core_sdk._ground.records import AttemptStarted
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.history import read_history
from core_sdk._home.journal import read_records

NAMES = ("trainer", "first", "second", "third", "fourth")
Report = tuple[int, int, int]
"""Attempt, step and value; values rise with time, and each is of one report."""
Start = Callable[..., subprocess.Popen[bytes]]
"""Starts a program on a machine."""


@pytest.fixture
def acknowledged(tmp_path: Path) -> Path:
    os.environ["CORE_SDK_QUIET"] = "1"
    return tmp_path / "acknowledged"


class Programs:
    """The trainer and four writers, each of which is started again, on any of the machines, when it is killed."""

    def __init__(self, acknowledged: Path, machines: Sequence[Start], chance: random.Random) -> None:
        self._acknowledged = acknowledged
        self._machines = machines
        self._chance = chance
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._num_acknowledged = Counter[str]()

    def start(self, name: str) -> None:
        argv = [sys.executable, str(Path(__file__).parent / "writing.py"), name, str(self._acknowledged)]
        self._running[name] = self._chance.choice(self._machines)(argv, stderr=subprocess.PIPE)

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


@contextlib.contextmanager
def machines(count: int) -> Iterator[Sequence[Start]]:
    """This machine, or several with names, networks and processes of their own, which see the home."""
    if count == 1:
        yield [subprocess.Popen]
    else:
        with host_group(count) as hosts:
            yield [host.start for host in hosts]


def read_acknowledged(path: Path) -> dict[str, list[Report]]:
    found: dict[str, list[Report]] = {name: [] for name in NAMES}
    for line in path.read_text().splitlines() if path.exists() else ():
        name, *numbers = line.split()
        attempt, step, value = map(int, numbers)
        found[name].append((attempt, step, value))
    return found


def visible(reports: list[Report], resumed: dict[int, int]) -> dict[int, int]:
    """Returns the value at each step of the newest attempt that no later one has superseded there."""
    kept = [one for one in reports if all(one[1] <= steps for later, steps in resumed.items() if later > one[0])]
    return {step: value for _, step, value in sorted(kept, key=lambda one: (one[0], one[2]))}


def delete_newest(home: Home, folder: TrialFolder, count: int) -> int:
    """Deletes so many of the checkpoints that are not superseded, but the oldest; returns the step of the newest left.

    The trial's own program must be dead.
    """
    kept = [each.record for each in read_history(folder).checkpoints if not each.is_superseded]
    deleted = kept[1:][-count:] if count else []
    for record in deleted:
        checkpoints.delete(home, record.storage_id)
    return kept[len(kept) - len(deleted) - 1].steps_completed


LONG = pytest.mark.timeout(3600)


@pytest.mark.parametrize(
    ("num_machines", "num_kills"),
    [(1, 12), pytest.param(1, 200, marks=LONG), pytest.param(2, 200, marks=[LONG, needs("hosts")])],
)
def test_no_kill_of_a_writer_or_of_the_trainer_loses_or_doubles_a_report(
    home: Home, acknowledged: Path, num_machines: int, num_kills: int
) -> None:
    """All acknowledged reports are there once, and those are visible whose checkpoint's step is.

    Every second time the trainer goes on from an earlier checkpoint than its newest.
    """
    chance, killed, folder = random.Random(num_kills), Counter[str](), home.folder(1)
    goes_on_from = {1: 0}
    with (
        machines(num_machines) as on_machines,
        contextlib.closing(Programs(acknowledged, on_machines, chance)) as programs,
    ):
        programs.start("trainer")
        wait_for(lambda: folder.exists() and len(read_history(folder).checkpoints) > 1)
        for name in NAMES[1:]:
            programs.start(name)
        for number in range(num_kills):
            name = "trainer" if number % 5 == 0 else chance.choice(NAMES[1:])
            programs.await_reports(name, chance.randrange(20))
            programs.kill(name)
            killed[name] += 1
            if name == "trainer":
                num_deleted = chance.randint(1, 3) if len(goes_on_from) % 2 else 0
                goes_on_from[len(goes_on_from) + 1] = delete_newest(home, folder, num_deleted)
            programs.start(name)
    killed.update(NAMES)

    starts = [next(iter(read_records(folder.journal_path(attempt)))) for attempt in folder.attempts()]
    resumed = {start.attempt: start.resumed_steps for start in starts if isinstance(start, AttemptStarted)}
    assert resumed == {attempt: steps for attempt, steps in goes_on_from.items() if attempt in resumed}
    assert len([steps for steps in resumed.values() if steps > 0]) >= num_kills // 6, "it went on from checkpoints"
    with open_view(home) as view:
        assert len({writer.name for writer in view.trial(1).writers}) == len(NAMES) - 1
        for name, told in read_acknowledged(acknowledged).items():
            rows = list(view.reports(1, rank=0 if name == "trainer" else name, superseded=True))
            recorded = [(row.attempt, row.steps_completed or 0, row.metrics["value"]) for row in rows]
            assert len(recorded) == len(set(recorded)), "none is doubled"
            assert set(told) <= set(recorded), "none is lost"
            assert len(recorded) - len(told) <= killed[name], "at most the last one of each life was not acknowledged"
            shown = {row.steps_completed: row.metrics["value"] for row in rows if not row.is_superseded}
            assert shown == visible(recorded, resumed)
