"""Experiments in Slurm while all is killed at random: no attempt is lost, none counts twice, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from execution.slurm.cluster import Cluster, slurm_cluster
from execution.slurm.trainings import finish, read_trial
from launches import live_processes
from parts import needs

from core_sdk._execution.experiments.calling import lock_path
from core_sdk._ground.alive import signed_by
from core_sdk._ground.environment.names import HOME_VARIABLE
from core_sdk._home import Home, open_view
from core_sdk.errors import TrialNotFoundError

pytestmark = needs("hosts", "slurm")

_CORE_SDK = [sys.executable, "-m", "core_sdk._interfaces.cli"]
_NUM_TRIALS = 3
_CONFIG = f"""\
name: killed
entrypoint: {sys.executable} -u train.py alone
hyperparameters: {{lr: {{type: categorical, vals: [0.1, 0.2, 0.3]}}}}
searcher: {{name: grid, metric: loss}}
resources: {{engine: slurm, slots_per_trial: 1}}
max_restarts: 1000
"""
# A node that is gone is given up after 6 s of silence, and Slurm may hold back a node for as long again.
_RECOVERY_S = 180


def _processes(home: Home, words: str) -> list[int]:
    """Returns the processes of this home, on all hosts, whose command line has these words."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # other tests have jobs, too
            if words in " ".join(process.cmdline()) and process.environ().get(HOME_VARIABLE) == str(home.root):
                found.append(process.pid)
    return found


class Killing:
    """An experiment, and what can be killed of it."""

    def __init__(self, slurm: Cluster, home: Home, place: Path, seed: int) -> None:
        self._slurm = slurm
        self._home = home
        self._place = place
        self._random = random.Random(seed)
        self.victims: dict[str, Callable[[], None]] = {
            "master": self._kill_master,
            "slurmctld": slurm.restart_controller,
            "slurmd": lambda: slurm.restart_slurmd(self._random.choice(list(slurm.hosts))),
            "node": lambda: slurm.reboot(self._random.choice(list(slurm.hosts)[1:])),
            "job": lambda: self._kill_one(_processes(home, "core_sdk._execution.slurm --trial")),
            "agent": lambda: self._kill_one(list(self._agents())),
            "rank": lambda: self._kill_one(_processes(home, "train.py alone")),
        }

    def kill_at_random(self, number: int) -> None:
        for _ in range(number):
            self.kill(self._random.choice(list(self.victims)))

    def kill(self, victim: str) -> None:
        """Kills a victim of this kind, and waits until all trials have trained further."""
        self.victims[victim]()
        before = self._num_reports()
        self._slurm.try_to_run([*_CORE_SDK, "queue", "list"], cwd=self._place)  # brings back a killed master
        self._slurm.wait_for(
            lambda: all(now > then for now, then in zip(self._num_reports(), before, strict=True)), _RECOVERY_S
        )

    def _kill_master(self) -> None:
        if (pid := signed_by(lock_path(self._home.root))) is not None:
            self._slurm.try_to_run(["kill", "-9", str(pid)], cwd=self._place)  # it may have ended meanwhile

    def _agents(self) -> Iterator[int]:
        for pid in _processes(self._home, "train.py alone"):
            with contextlib.suppress(psutil.Error):
                yield psutil.Process(pid).ppid()

    def _kill_one(self, pids: list[int]) -> None:
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(pids), signal.SIGKILL)

    def _num_reports(self) -> list[int]:
        """Returns how much each trial has recorded, in all its attempts."""
        sizes = []
        for trial_id in range(1, _NUM_TRIALS + 1):
            with contextlib.suppress(TrialNotFoundError, FileNotFoundError):
                folder = self._home.trial(trial_id)
                sizes.append(sum(folder.journal_path(each).stat().st_size for each in folder.attempts()))
        return sizes + [0] * (_NUM_TRIALS - len(sizes))


@pytest.fixture
def killing(home: Home, place: Path, request: pytest.FixtureRequest) -> Iterator[Killing]:
    """An experiment whose trials all train; at the end each has all its steps once, and nothing is left."""
    with slurm_cluster(3, silence_s=6) as slurm:
        (place / "config.yaml").write_text(_CONFIG)
        slurm.run([*_CORE_SDK, "experiment", "create", "config.yaml"], cwd=place)
        killing = Killing(slurm, home, place, getattr(request, "param", 0))
        slurm.wait_for(lambda: all(killing._num_reports()), _RECOVERY_S)

        yield killing

        finish(place)
        slurm.try_to_run([*_CORE_SDK, "queue", "list"], cwd=place)
        slurm.wait_for(lambda: _state(home) == "COMPLETED", _RECOVERY_S)
        slurm.wait_for(lambda: not slurm.run(["squeue", "--noheader"]).strip())
        slurm.run([*_CORE_SDK, "master", "down"], cwd=place)
        slurm.wait_for(lambda: not live_processes(place))
        for trial_id in range(1, _NUM_TRIALS + 1):
            trial = read_trial(home, trial_id)
            assert list(trial.steps) == list(range(1, len(trial.steps) + 1))
            assert all(start.resumed_steps in (0, *trial.checkpoints) for start in trial.starts)
            assert trial.outcome == "completed"
        assert home.trial_ids() == list(range(1, _NUM_TRIALS + 1))


def _state(home: Home) -> str:
    with open_view(home) as view:
        return view.experiment(1).state


def test_trials_outlive_the_death_of_what_runs_them(killing: Killing) -> None:
    """A master, a job's process and a rank are killed, and the controller restarts: the trials go on."""
    for victim in ("master", "slurmctld", "job", "rank"):
        killing.kill(victim)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("killing", range(10), indirect=True)
def test_trials_outlive_kills_at_random(killing: Killing) -> None:
    """Ten times in each of ten runs something is killed: a master, a daemon, a node, an agent or a rank."""
    killing.kill_at_random(10)
