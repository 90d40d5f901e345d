"""Whatever byte of a home is damaged, its master and its lists go on, and nothing is decided otherwise."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from execution.master.damage import HomeWithExperiments, made_home
from stage import flip, replace

from core_sdk._execution.agent.starting import AgentSpawner
from core_sdk._execution.experiments.protocol import ChangeSettings
from core_sdk._execution.master._master import Master
from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk._machine.slots import Machine
from core_sdk.errors import CoreSDKError

_OF_PROCESSES = (".lock", ".alive", ".supervised", ".sock", ".log", "tracker.db")
"""Ends of the names of files that hold no records, or are made again when they are damaged."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeWithExperiments]:
    tmp_path = tmp_path_factory.mktemp("damaged")
    before = dict(os.environ)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with made_home(Home.create(tmp_path / "home"), tmp_path, has_ended_trial=True) as made:
        yield made
    os.environ.clear()
    os.environ.update(before)


def record_files(home: Home) -> list[Path]:
    """Returns all files that hold records; the tests of storages damage the checkpoints."""
    return sorted(
        path
        for path in home.root.rglob("*")
        if path.is_file()
        and path.stat().st_size
        and not path.name.endswith(_OF_PROCESSES)
        and not {"checkpoints", "tensorboard"} & set(path.relative_to(home.root).parts)
        and path.relative_to(home.root).parts[2:3] != ("code",)
    )


@dataclass(frozen=True)
class Seen:
    """What a master and the lists say of a home, by experiment and trial."""

    states: dict[int, str]
    problems: dict[int, str]
    experiments: dict[int, object]
    trials: dict[int, object]
    left_out: list[str]


def see(master: Master, index: Index) -> Seen:
    status = master._status()
    index.refresh()
    return Seen(
        {one.experiment_id: one.state for one in status.experiments},
        {one.experiment_id: one.suspended for one in status.experiments},
        {row.experiment_id: (row.name, row.state) for row in index.experiments()},
        {row.trial_id: (row.experiment_id, row.state, row.hparams) for row in index.trials()},
        index.left_out(),
    )


def look(master: Master) -> None:
    for _ in range(2):
        master._go_on()


def damaged(chance: random.Random, content: bytes) -> bytes:
    """Returns the content with one bit flipped or its end cut off."""
    if chance.random() < 0.7:
        return flip(content, chance.randrange(len(content) * 8))
    return content[: chance.randrange(len(content))]


def journals(home: Home) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.root.glob("experiments/*/events.journal")}


def check(made: HomeWithExperiments, path: Path, before: Seen, after: Seen) -> None:
    """Checks that only what the damaged file describes has changed, and that the damage is named."""
    parts = path.relative_to(made.home.root).parts
    concerned = int(parts[1]) if parts[0] == "experiments" and parts[1].isdecimal() else None
    for experiment_id, state in before.states.items():
        if experiment_id != concerned:
            assert (after.states[experiment_id], after.problems[experiment_id]) == (state, ""), path
        elif after.states[experiment_id] == "DAMAGED":
            assert str(path) in after.problems[experiment_id]
        else:
            assert after.states[experiment_id] == state
    assert after.states.keys() == before.states.keys()
    for experiment_id, row in before.experiments.items():
        is_listed = after.experiments.get(experiment_id) == row
        assert is_listed or experiment_id == concerned or parts[0] == "runs"
    trial = parts[1] if parts[0] == "runs" else ""
    for trial_id, shown in before.trials.items():
        if str(trial_id) != trial:
            assert after.trials[trial_id] == shown


@pytest.mark.parametrize("num_damages", [40, pytest.param(1500, marks=pytest.mark.timeout(3600))])
def test_no_damage_stops_a_master_that_starts(made: HomeWithExperiments, num_damages: int) -> None:
    """A master starts with any damaged file, makes no wrong decision and names the damage."""
    chance = random.Random(5)
    trial_ids = made.home.trial_ids(include_deleted=True)
    with Index(made.home) as index, kept_spawner() as spawner:
        before = watch(made.home, index, spawner)
        assert set(before.states.values()) == {"ACTIVE", "PAUSED"}
        files = record_files(made.home)
        num_named = 0
        for _ in range(num_damages):
            path = chance.choice(files)
            content = path.read_bytes()
            replace(path, damaged(chance, content))
            events = journals(made.home)

            after = watch(made.home, index, spawner)

            check(made, path, before, after)
            assert journals(made.home) == events, path
            assert made.home.trial_ids(include_deleted=True) == trial_ids, path
            num_named += any(str(path) in problem for problem in after.problems.values())
            replace(path, content)
        assert watch(made.home, index, spawner) == before
    assert num_named > num_damages / 10


class KeptSpawner(AgentSpawner):
    """A spawner that several masters use in turn, since its process takes a second to start."""

    def close(self) -> None:
        """Does nothing; `end` ends the process."""

    def end(self) -> None:
        super().close()


@contextlib.contextmanager
def kept_spawner() -> Iterator[AgentSpawner]:
    spawner = KeptSpawner()
    try:
        yield spawner
    finally:
        spawner.end()


def watch(home: Home, index: Index, spawner: AgentSpawner) -> Seen:
    """Starts a master in the home and returns what it sees."""
    master = Master(home, Machine(2), spawner=spawner)
    try:
        master.recover()
        look(master)
        return see(master, index)
    finally:
        master.close()


def restore(path: Path, content: bytes, new: bytes) -> None:
    """Undoes the damage and keeps what the master has written since."""
    now = path.read_bytes()
    if path.name == "events.journal":
        replace(path, content + now[len(new) :])
    elif now == new:
        replace(path, content)


@pytest.mark.parametrize("num_damages", [40, pytest.param(1500, marks=pytest.mark.timeout(3600))])
def test_no_damage_stops_a_master_that_runs(made: HomeWithExperiments, num_damages: int) -> None:
    """A running master survives any damaged file, and other experiments go on."""
    chance = random.Random(6)
    trial_ids = made.home.trial_ids(include_deleted=True)
    master = Master(made.home, Machine(2))
    try:
        master.recover()
        look(master)
        with Index(made.home) as index:
            before = see(master, index)
            files = record_files(made.home)
            for _ in range(num_damages):
                path = chance.choice(files)
                content = path.read_bytes()
                new = damaged(chance, content)
                if chance.random() < 0.5:
                    replace(path, new)
                else:
                    path.write_bytes(new)
                for experiment_id in before.states:
                    touch(master, experiment_id, path)
                look(master)

                check(made, path, before, see(master, index))
                restore(path, content, new)
                look(master)
                master._take_up(made.running)
                master._take_up(made.paused)
                look(master)
                assert see(master, index).states == before.states, path
            assert made.home.trial_ids(include_deleted=True) == trial_ids
    finally:
        master.close()


def touch(master: Master, experiment_id: int, path: Path) -> None:
    """Makes the master record an event of the experiment."""
    try:
        master._do(ChangeSettings(experiment_id=experiment_id, priority=50))
    except CoreSDKError as error:
        assert str(path) in str(error)
