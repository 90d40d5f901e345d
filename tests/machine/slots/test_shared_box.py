"""Several homes of several users on one machine, whose masters, agents and trials are killed at random."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from core_sdk._home import Home
from core_sdk._machine.slots import PostedTicket, SlotDirectory
from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError

_CONFIG = """
name: shared
entrypoint: [{python}, train.py]
searcher: {{name: random, metric: loss, max_trials: {num_trials}, max_concurrent_trials: {num_trials}}}
hyperparameters: {{x: {{type: double, minval: 0, maxval: 1}}}}
max_restarts: 1000
"""
# Each trial locks its slots for itself. Nobody else may have them, not even in the moment of a kill.
_TRAIN = """
import fcntl, json, os, time
with open(os.environ["CORE_SDK_RUN_INFO"]) as file:
    slots = json.load(file)["slot_ids"]
files = [os.open(f"{box}/{{slot}}.locked", os.O_RDWR | os.O_CREAT, 0o666) for slot in slots]
for slot, file in zip(slots, files):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        open(f"{box}/collision", "a").write(f"{{slot}} ")
    try:
        os.chmod(f"{box}/{{slot}}.locked", 0o666)
    except PermissionError:
        pass
time.sleep({train_s})
"""


@dataclass
class Account:
    """A home of a user of the machine; `uid` is None for the user who runs the tests."""

    home: Path
    uid: int | None
    num_slots: int

    def run(self, *arguments: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments],
            env=os.environ | {"CORE_SDK_HOME": str(self.home), "HOME": str(self.home.parent)},
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
            cwd=self.home.parent,
            capture_output=True,
            text=True,
        )
        return ended.stdout + ended.stderr

    def revive(self) -> None:
        """Starts the master, unless it runs."""
        self.run("master", "up", "--slots", str(self.num_slots))

    @property
    def has_ended(self) -> bool:
        try:
            search = Home(self.home).experiment(1).read().search
        except (ExperimentNotFoundError, RecordDamagedError):
            return False
        return search is not None and search.has_ended


@dataclass
class Sampler:
    """Looks at the tickets again and again, from another thread, and notes what must not be."""

    num_samples: int = 0
    wrong: list[str] = field(default_factory=list)
    _granted: dict[tuple[int, float], PostedTicket] = field(default_factory=dict)

    def run(self, is_over: threading.Event) -> None:
        directory = SlotDirectory()
        while not is_over.wait(0.002):
            self._check(directory.read())
            self.num_samples += 1

    def _check(self, tickets: Sequence[PostedTicket]) -> None:
        held = [slot for ticket in tickets for slot in ticket.held]
        if len(held) != len(set(held)):
            self.wrong.append(f"given twice: {tickets}")
        for late in (ticket for ticket in tickets if ticket.held):
            for early in (ticket for ticket in tickets if not ticket.held and not ticket.is_asleep):
                # Both have waited at the moment when the later one was served.
                if late.place > early.place and late.since > early.since:
                    self.wrong.append(f"{late} was served before {early}")


@functools.cache
def _are_other_users_possible() -> bool:
    """Returns whether another user can run our interpreter with this code."""
    try:
        command = [sys.executable, "-c", "import core_sdk._interfaces.cli._app"]
        return subprocess.run(command, user=60001, group=60001, extra_groups=[], capture_output=True).returncode == 0
    except (PermissionError, OSError):
        return False


def _kill_one(box: Path, chosen: random.Random) -> None:
    """Kills a master, an agent, a guardian or a training of the box, at random."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        environment = process.info["environ"] or {}
        command = " ".join(process.info["cmdline"] or [])
        if environment.get("CORE_SDK_SLOTS") == str(box / "slots") and "core_sdk._interfaces.cli" not in command:
            found.append(process)
    if found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chosen.choice(found).pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("num_users", "num_trials", "num_slots", "num_kills", "num_samples"),
    [
        pytest.param(1, 3, 2, 3, 100, id="sample"),
        pytest.param(3, 20, 4, 60, 10_000, id="whole", marks=pytest.mark.timeout(3000)),
    ],
)
def test_no_slot_is_shared_whoever_is_killed(
    tmp_path: Path, num_users: int, num_trials: int, num_slots: int, num_kills: int, num_samples: int
) -> None:
    """Homes of several users share a box: no slot is given twice, the order is kept, and all trials end, after kills.

    The users are other users of the system where root runs the test, and they can run its interpreter.
    """
    box = Path(os.environ["CORE_SDK_SLOTS"]).parent
    for path in (box, *box.parents[:2]):
        path.chmod(0o755)
    uids = [60001 + number if _are_other_users_possible() else None for number in range(num_users)]
    accounts = []
    for number, uid in enumerate(uids):
        for name in "ab":
            folder = box / f"user {number} {name}"
            (folder / "code").mkdir(parents=True)
            (folder / "code" / "train.py").write_text(_TRAIN.format(box=box, train_s=0.5))
            (folder / "search.yaml").write_text(_CONFIG.format(python=sys.executable, num_trials=num_trials))
            if uid is not None:
                os.chown(folder, uid, uid)
            accounts.append(Account(folder / "home", uid, num_slots))
    box.chmod(0o1777)
    for account in accounts:
        account.revive()
        account.run("experiment", "create", "search.yaml", "code")
    sampler, is_over, chosen = Sampler(), threading.Event(), random.Random(1)
    sampling = threading.Thread(target=sampler.run, args=[is_over])
    sampling.start()

    try:
        for _ in range(num_kills):
            time.sleep(chosen.uniform(0, 0.5))
            _kill_one(box, chosen)
            for account in accounts:
                if not (account.home / "master.sock").exists() or chosen.random() < 0.2:
                    account.revive()
        deadline = time.monotonic() + 2400
        while not all(account.has_ended for account in accounts) or sampler.num_samples < num_samples:
            assert time.monotonic() < deadline, [account.run("queue", "list") for account in accounts]
            for account in accounts:
                if not account.has_ended:
                    account.revive()
            time.sleep(0.5)
    finally:
        is_over.set()
        sampling.join()
        for account in accounts:
            account.run("master", "down")

    assert sampler.wrong == []
    assert not (box / "collision").exists()
    for account in accounts:
        trials = account.run("trial", "list")
        assert trials.count("COMPLETED") == num_trials, trials
    assert SlotDirectory().read() == []
