"""Masters of several homes, and commands, on the slots of one machine."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from execution.master.searches import await_end, submit_text
from masters import running_master
from processes import wait_for

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import ExperimentStatus, GetStatus
from core_sdk._home import Home
from core_sdk._machine.slots import SlotDirectory, taken_slots

_CONFIG = """
entrypoint: [python, train.py]
searcher: {{name: random, metric: loss, max_trials: {num_trials}, max_concurrent_trials: {num_trials}}}
hyperparameters: {{x: {{type: double, minval: 0, maxval: 1}}}}
resources: {{slots_per_trial: {num_slots}, priority: {priority}}}
"""


class Box:
    """Homes on one machine, whose trials go on until a file of their experiment's name is there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def home(self, name: str) -> Home:
        return Home.create(self.root / name)

    def submit(
        self, home: Home, name: str, *, num_trials: int = 1, num_slots: int = 1, priority: int = 42
    ) -> Callable[[], ExperimentStatus]:
        """Submits an experiment, and returns what tells how it is."""
        train = f"""
            import os, time
            with open({str(self.root / "begun")!r}, "a") as file:
                file.write("{name}\\n")
            while not os.path.exists({str(self.root / name)!r}):
                time.sleep(0.02)
        """
        text = f"name: {name}" + _CONFIG.format(num_trials=num_trials, num_slots=num_slots, priority=priority)
        (self.root / f"code of {name}").mkdir()
        experiment_id = submit_text(home, self.root / f"code of {name}", text, textwrap.dedent(train))

        def status() -> ExperimentStatus:
            return next(
                each for each in call(home.root, GetStatus()).experiments if each.experiment_id == experiment_id
            )

        return status

    def let_end(self, name: str) -> None:
        (self.root / name).touch()

    @property
    def begun(self) -> list[str]:
        """The experiments whose trials have begun, in that order."""
        return (self.root / "begun").read_text().split() if (self.root / "begun").exists() else []


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    yield Box(tmp_path)


def test_homes_take_turns_and_say_for_whom_they_wait(box: Box) -> None:
    """A home waits with one trial at a time, so that another one gets its turn; the one that waits says for whom."""
    one, two = box.home("one"), box.home("two")
    with running_master(one, 1), running_master(two, 1):
        box.submit(one, "first", num_trials=3)
        wait_for(lambda: box.begun == ["first"])
        waiting = box.submit(two, "second")

        wait_for(lambda: "has cpu-0 since" in waiting().suspended)
        told = waiting().suspended
        box.let_end("first")
        wait_for(lambda: len(box.begun) == 3)
        box.let_end("second")
        await_end(one, 1)

    assert told.startswith(f"waiting for 1 of 1 slots: trial 1 of {one.root} has cpu-0 since ")
    assert box.begun == ["first", "first", "second", "first"]
    assert not list(SlotDirectory().path.iterdir())


def test_a_home_gives_its_own_slots_to_what_is_more_important(box: Box) -> None:
    """A trial that is stopped for a more important one of its home hands its place to it, before homes that wait."""
    one, two = box.home("one"), box.home("two")
    with running_master(one, 1), running_master(two, 1):
        box.submit(one, "low")
        wait_for(lambda: box.begun == ["low"])
        waiting = box.submit(two, "other")
        wait_for(lambda: "has cpu-0" in waiting().suspended)

        box.submit(one, "high", priority=1)
        wait_for(lambda: box.begun == ["low", "high"])
        box.let_end("high")
        wait_for(lambda: box.begun == ["low", "high", "other"])


def test_a_large_trial_gets_slots_that_others_free_one_by_one(box: Box) -> None:
    """A trial of two slots waits for both, and what comes later does not take the one that is free already."""
    with running_master(box.home("one"), 2), running_master(box.home("two"), 2):
        with taken_slots(1, box.root):
            with taken_slots(1, box.root):
                box.submit(box.home("one"), "large", num_slots=2)
                wait_for(lambda: len(list(SlotDirectory().path.glob("*.ticket"))) == 3)
                small = box.submit(box.home("two"), "small")
            wait_for(lambda: "waits for 2 since" in small().suspended)
        wait_for(lambda: box.begun == ["large"])


def test_an_attempt_without_a_ticket_keeps_its_recorded_slots(box: Box) -> None:
    """An attempt that an older version has started has no ticket; its home's master still gives its slots to none."""
    home = box.home("one")
    with running_master(home, 1):
        box.submit(home, "old")
        wait_for(lambda: box.begun == ["old"])
        for path in SlotDirectory().path.iterdir():
            path.unlink()

        new = box.submit(home, "new")
        wait_for(lambda: new().waiting == 1)
        call(home.root, GetStatus())
        assert box.begun == ["old"]
        box.let_end("old")
        wait_for(lambda: box.begun == ["old", "new"])


def test_a_master_without_a_usable_slot_directory_says_so(box: Box) -> None:
    """Where no ticket can be posted, no trial begins; the experiment says why, and goes on when that is mended."""
    directory = SlotDirectory().path
    directory.mkdir(mode=0o755)
    home = box.home("one")
    with running_master(home, 1):
        status = box.submit(home, "any")
        wait_for(lambda: "only its owner" in status().suspended)

        directory.chmod(0o1777)
        wait_for(lambda: box.begun == ["any"])
