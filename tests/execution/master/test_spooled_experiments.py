"""Experiments on the nodes of a Ray cluster that do not see the home: their records come home, whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from execution.master.searches import OPERATIONS, await_end, events_of
from execution.workers.ray_hosts import RayHosts, ray_hosts
from parts import needs
from processes import wait_for

from core_sdk._execution.experiments.calling import call, call_running
from core_sdk._execution.experiments.protocol import GetStatus
from core_sdk._ground.records import AttemptBegun, AttemptOver
from core_sdk._home import Home, open_view
from core_sdk._home.rows import CheckpointRow, TrialRow

pytestmark = [needs("ray", "hosts"), pytest.mark.timeout(300)]

TRAIN = """
import os, time
from core_sdk import core

with core.init(distributed=core.DistributedContext()) as context:  # one process, on however many slots
    first = 1
    if context.info.latest_checkpoint is not None:
        with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
            first = int((path / "epoch").read_text()) + 1
    for epoch in range(first, context.info.trial.hparams["epochs"] + 1):
        context.train.report_validation_metrics(steps_completed=epoch, metrics={"loss": 1 / epoch})
        with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
            (path / "epoch").write_text(str(epoch))
        print("epoch", epoch, "on", os.uname().nodename, flush=True)
        if context.preempt.should_preempt():
            break
        time.sleep(context.info.trial.hparams["pause_s"])
"""

FIT = """
import tempfile
from pathlib import Path
from core_sdk import train
from core_sdk.train.torch import TorchTrainer

def function():
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "epoch").write_text("1")
        train.report({"loss": 1.0}, checkpoint=train.Checkpoint.from_directory(directory))

print(TorchTrainer(function, scaling_config=train.ScalingConfig(num_workers=1, engine="local")).fit())
"""

CONFIG = """
name: away
entrypoint: [python, train.py]
hyperparameters: {{x: {{type: categorical, vals: [1, 2]}}, pause_s: {pause_s}, epochs: {epochs}}}
searcher: {searcher}
resources: {{engine: ray, address: "{address}", slots_per_trial: 1}}
checkpoint_storage: {storage}
"""

SINGLE = "{name: single, metric: loss, max_length: 20}"
GRID = "{name: grid, metric: loss, max_length: 20}"
PROMOTION = """{name: async_halving, metric: loss, max_trials: 4, max_concurrent_trials: 2, num_rungs: 2, divisor: 2,
  max_length: 4}"""


class Away:
    """Hosts of which the first has the home and the master, and the others have the CPUs."""

    def __init__(self, cluster: RayHosts) -> None:
        self.cluster = cluster
        self.home = Home(cluster.home)
        (cluster.directory / "train.py").write_text(TRAIN)

    def cli(self, *arguments: str) -> str:
        return self.cluster.run_cli(*arguments)

    def create(
        self, *options: str, pause_s: float = 0, epochs: int = 20, searcher: str = SINGLE, storage: str = "null"
    ) -> int:
        """Creates an experiment and returns its id."""
        address = self.cluster.address
        text = CONFIG.format(address=address, pause_s=pause_s, epochs=epochs, searcher=searcher, storage=storage)
        (self.cluster.directory / "away.yaml").write_text(text)
        return int(self.cli("experiment", "create", "away.yaml", ".", *options).split()[-1])

    def epochs(self, trial_id: int = 1) -> list[int | None]:
        """Returns the epochs that the trial has reported, without superseded ones."""
        with open_view(self.home) as view:
            return [report.steps_completed for report in view.reports(trial_id) if not report.is_superseded]

    def checkpoints(self) -> list[CheckpointRow]:
        with open_view(self.home) as view:
            return [checkpoint for checkpoint in view.checkpoints() if checkpoint.state != "DELETED"]

    def log(self, attempt: int = 1, trial_id: int = 1) -> str:
        path = self.home.folder(trial_id).log_path(attempt)
        return path.read_text() if path.exists() else ""

    def await_epoch(self, epoch: int, attempt: int = 1, trial_id: int = 1) -> None:
        wait_for(lambda: f"epoch {epoch} " in self.log(attempt, trial_id), timeout_s=90)

    def trial(self, trial_id: int = 1) -> TrialRow:
        with open_view(self.home) as view:
            return view.trial(trial_id)

    def kill_master(self) -> None:
        """Kills the master on the first host."""
        self.cluster.hosts[0].run(["kill", "-9", str(call(self.home.root, GetStatus()).pid)])

    def spooled(self, name: str) -> list[Path]:
        """Returns the files of this name in the spools of all other hosts."""
        spools = [self.cluster.spool_of(index) for index in range(1, len(self.cluster.hosts))]
        return [spool / name for spool in spools if (spool / name).exists()]

    def left(self) -> list[Path]:
        """Returns what is left of trials in the spools of the other hosts."""
        spools = [self.cluster.spool_of(index) for index in range(1, len(self.cluster.hosts))]
        return [path for spool in spools for path in (*spool.glob("runs/*"), *spool.glob("checkpoints/[!.]*"))]


@pytest.fixture(scope="module")
def three_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHosts]:
    with ray_hosts(tmp_path_factory.mktemp("homes"), 3, num_cpus_of_first=0) as cluster:
        yield cluster


@pytest.fixture
def away(three_hosts: RayHosts, tmp_path: Path) -> Iterator[Away]:
    away = Away(three_hosts.for_test(tmp_path))
    yield away
    status = call_running(away.home.root, GetStatus())
    for experiment in status.experiments if status else ():
        away.cli("experiment", "kill", str(experiment.experiment_id))


@pytest.fixture
def home(three_hosts: RayHosts, tmp_path: Path) -> Home:
    """The home in which this test's masters work."""
    return Home(three_hosts.for_test(tmp_path).home)


def test_records_of_nodes_that_do_not_see_the_home_come_home(away: Away) -> None:
    """Reports, checkpoints, logs and ends, each once. Nothing is left there."""
    experiment_id = away.create(searcher=GRID)

    search = await_end(away.home, experiment_id)

    assert search.state == "COMPLETED", search
    for trial_id in (1, 2):
        assert away.epochs(trial_id) == list(range(1, 21))
        assert [line.split()[:2] for line in away.log(trial_id=trial_id).splitlines()] == [
            ["epoch", str(epoch)] for epoch in range(1, 21)
        ]
    assert len(away.checkpoints()) == 40
    assert all((away.home.checkpoints / row.storage_id / "epoch").exists() for row in away.checkpoints())
    assert away.left() == []


@pytest.mark.parametrize("has_ended", [False, True])
def test_attempts_of_a_killed_master_go_on_and_their_records_come_home(away: Away, has_ended: bool) -> None:
    """After a kill of the master, attempts go on, and the next master brings their records home once."""
    experiment_id = away.create(pause_s=0.3)
    away.await_epoch(3)
    assert away.home.folder(1).running_attempt() == 1

    away.kill_master()
    wait_for(lambda: any("epoch 9 " in log.read_text() for log in away.spooled("runs/1/1.log")), timeout_s=60)
    wait_for(lambda: not has_ended or bool(away.spooled("runs/1/1.exit")), timeout_s=60)
    assert "epoch 9 " not in away.log()
    away.cli("master", "up")
    wait_for(lambda: has_ended or away.home.folder(1).running_attempt() == 1, timeout_s=60)

    assert await_end(away.home, experiment_id).state == "COMPLETED"
    events = events_of(away.home, experiment_id)
    assert [event.attempt for event in events if isinstance(event, AttemptBegun)] == [1]
    assert [event.outcome for event in events if isinstance(event, AttemptOver)] == ["completed"]
    assert away.epochs() == list(range(1, 21))
    assert away.log().count("epoch 9 ") == 1
    assert away.left() == []


def test_an_attempt_outlives_its_actor_on_a_node_that_does_not_see_the_home(away: Away) -> None:
    """If an actor on a node without the home is killed, another actor brings the records home."""
    experiment_id = away.create(pause_s=0.3)
    away.await_epoch(2)

    processes = [psutil.Process(pid) for host in away.cluster.hosts for pid in host.living()]
    [actor] = [process for process in processes if "AttemptActor" in str(process.cmdline())]
    actor.kill()

    assert await_end(away.home, experiment_id).state == "COMPLETED"
    assert [event.attempt for event in events_of(away.home, experiment_id) if isinstance(event, AttemptBegun)] == [1]
    assert away.epochs() == list(range(1, 21))


def test_a_pause_reaches_a_node_that_does_not_see_the_home(away: Away) -> None:
    """The trial saves, ends, and goes on from there, wherever it is placed then."""
    experiment_id = away.create(pause_s=0.3)
    away.await_epoch(2)

    away.cli("experiment", "pause", str(experiment_id))
    wait_for(lambda: away.trial().state == "PAUSED", timeout_s=60)
    paused_at = away.trial().steps_completed
    away.cli("experiment", "activate", str(experiment_id))

    assert await_end(away.home, experiment_id).state == "COMPLETED"
    assert paused_at is not None
    assert paused_at < 20
    assert away.log(attempt=2).startswith(f"epoch {paused_at + 1} ")
    assert away.epochs() == list(range(1, 21))


def test_an_experiment_on_nodes_that_do_not_see_the_home_is_killed(away: Away) -> None:
    """Killing an experiment ends its processes on nodes that do not see the home."""
    experiment_id = away.create(pause_s=600)
    away.await_epoch(1)

    away.cli("experiment", "kill", str(experiment_id))

    assert await_end(away.home, experiment_id).state == "CANCELED"
    assert away.home.folder(1).running_attempt() is None
    assert away.epochs() == [1]
    assert away.left() == []


def test_a_trial_begins_there_with_the_checkpoint_of_another_one(away: Away) -> None:
    """A forked trial gets its checkpoint on a node that does not see the home."""
    first = away.create(epochs=3)
    assert await_end(away.home, first).state == "COMPLETED"

    forked = away.create("--config", "searcher.source_trial_id=1", epochs=6)

    assert await_end(away.home, forked).state == "COMPLETED"
    assert away.epochs(2) == [4, 5, 6]


def test_workers_that_a_script_there_starts_record_in_the_same_spool(away: Away) -> None:
    """Workers that a script starts on such a node record in the same spool."""
    (away.cluster.directory / "train.py").write_text(FIT)

    search = await_end(away.home, away.create())

    assert search.state == "COMPLETED", search
    [checkpoint] = away.checkpoints()
    assert checkpoint.storage == away.home.checkpoints.as_uri()
    assert (away.home.checkpoints / checkpoint.storage_id).exists()


def test_a_search_there_promotes_trials_that_wait_for_it(away: Away) -> None:
    """A search can promote trials on a node that does not see the home."""
    (away.cluster.directory / "train.py").write_text(OPERATIONS)
    experiment_id = away.create(searcher=PROMOTION)

    assert await_end(away.home, experiment_id).state == "COMPLETED"

    steps = sorted(steps or 0 for steps in (away.trial(trial_id).steps_completed for trial_id in range(1, 5)))
    assert steps[0] < 4
    assert steps[-1] == 4


def test_checkpoints_there_are_collected_by_the_policy_of_the_experiment(away: Away) -> None:
    """Checkpoints on such a node are collected by the experiment's policy."""
    policy = "{save_experiment_best: 0, save_trial_best: 0, save_trial_latest: 2}"

    assert await_end(away.home, away.create(storage=policy)).state == "COMPLETED"

    assert [checkpoint.steps_completed for checkpoint in away.checkpoints()] == [20, 19]
    assert len(list(away.home.checkpoints.glob("[!.]*"))) == 2


def test_a_checkpoint_that_is_deleted_at_home_is_deleted_there(away: Away) -> None:
    """Deleting a checkpoint at home deletes it on the node too."""
    experiment_id = away.create(pause_s=0.5)
    away.await_epoch(3)
    storage_id = away.checkpoints()[0].storage_id
    assert away.spooled(f"checkpoints/{storage_id}")

    away.cli("checkpoint", "delete", "--yes", storage_id)

    wait_for(lambda: not away.spooled(f"checkpoints/{storage_id}"))
    assert await_end(away.home, experiment_id).state == "COMPLETED"
    assert len(away.checkpoints()) == 19


def test_a_node_that_is_cut_off_for_a_while_goes_on(away: Away) -> None:
    """A node that is cut off goes on, and its records come when it is connected again."""
    experiment_id = away.create(pause_s=0.3)
    away.await_epoch(2)
    node = away.cluster.hosts[int(away.log().split()[3][1:]) - 1]

    node.cut()
    wait_for(lambda: any("epoch 12 " in log.read_text() for log in away.spooled("runs/1/1.log")), timeout_s=60)
    assert "epoch 12 " not in away.log()
    node.mend()

    assert await_end(away.home, experiment_id).state == "COMPLETED"
    assert [event.attempt for event in events_of(away.home, experiment_id) if isinstance(event, AttemptBegun)] == [1]
    assert away.epochs() == list(range(1, 21))


def test_a_trial_goes_on_elsewhere_when_its_node_dies_with_its_spool(away: Away) -> None:
    """If a node dies, its trial resumes elsewhere, and its late records count as superseded."""
    experiment_id = away.create(pause_s=0.3)
    away.await_epoch(4)
    name = away.log().split()[3]
    node = away.cluster.hosts[int(name[1:]) - 1]
    node.cut()
    wait_for(lambda: any("epoch 9 " in log.read_text() for log in away.spooled("runs/1/1.log")), timeout_s=60)

    node.kill_all()
    node.mend()

    assert await_end(away.home, experiment_id).state == "COMPLETED"
    events = events_of(away.home, experiment_id)
    ends = [(event.outcome, event.reason) for event in events if isinstance(event, AttemptOver)]
    assert ends == [("failed", f"its node {name} has died"), ("completed", "")]
    first = away.log(attempt=2).splitlines()[0]
    assert not first.endswith(f" on {name}")
    assert 4 <= int(first.split()[1]) < 9
    assert "epoch 9 " not in away.log()
    away.cluster.start_node(node)
    on_all_nodes = away.create("--config", "resources.slots_per_trial=2", searcher=GRID, pause_s=0.3)
    assert await_end(away.home, on_all_nodes).state == "COMPLETED"
    assert "epoch 9 " in away.log()
    assert away.epochs() == list(range(1, 21))
    assert away.left() == []
