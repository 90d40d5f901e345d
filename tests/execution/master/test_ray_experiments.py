"""Experiments whose trials run on the nodes of a Ray cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from execution.master.ray_clusters import Cli, RayOnHosts
from execution.master.searches import await_end, events_of
from execution.workers.engines import ray_node
from frameworks.environments import environment
from parts import needs
from ports import reserved_port
from processes import wait_for

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import GetStatus
from core_sdk._ground.records import AttemptBegun, AttemptOver
from core_sdk._home import Home, open_view
from core_sdk._home.rows import TrialRow

TRAIN = """
import os, time
from core_sdk import core

with core.init(distributed=core.DistributedContext()) as context:  # one process, on however many slots
    first = 1
    if context.info.latest_checkpoint is not None:
        with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
            first = int((path / "epoch").read_text()) + 1
    for epoch in range(first, 21):
        context.train.report_validation_metrics(steps_completed=epoch, metrics={"loss": 1 / epoch})
        with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
            (path / "epoch").write_text(str(epoch))
        print("epoch", epoch, "on", os.uname().nodename, flush=True)
        if context.preempt.should_preempt():
            break
        time.sleep(context.info.trial.hparams["pause_s"])
"""

CONFIG = """
name: on-ray
entrypoint: [python, train.py]
hyperparameters: {{x: {{type: categorical, vals: [1, 2]}}, pause_s: {pause_s}}}
searcher: {searcher}
resources: {{engine: ray, address: "{address}", slots_per_trial: {slots}}}
"""

SINGLE = "{name: single, metric: loss, max_length: 20}"
GRID = "{name: grid, metric: loss, max_length: 20}"


def create(
    cli: Cli, home: Home, address: str, *options: str, pause_s: float = 0, slots: int = 1, searcher: str = SINGLE
) -> int:
    """Creates an experiment and returns its id."""
    (home.root.parent / "train.py").write_text(TRAIN)
    config = home.root.parent / "ray.yaml"
    config.write_text(CONFIG.format(address=address, pause_s=pause_s, slots=slots, searcher=searcher))
    done = cli("experiment", "create", "ray.yaml", *options)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def trials_of(home: Home, experiment_id: int) -> list[TrialRow]:
    with open_view(home) as view:
        return list(view.trials(experiment_id))


def await_steps(home: Home, trial_id: int, steps: int) -> None:
    """Waits until the trial has printed this epoch."""

    def has_come() -> bool:
        logs = home.folder(trial_id).path.glob("*.log")
        return any(f"epoch {steps} " in log.read_text() for log in logs)

    wait_for(has_come, timeout_s=60)


def actors(address: str) -> list[psutil.Process]:
    """Returns the processes of attempts' actors in this cluster."""
    port = address.rpartition(":")[2]
    found = [each for each in psutil.process_iter(["cmdline"]) if "AttemptActor" in str(each.info["cmdline"])]
    raylets = [(each, each.parent()) for each in found]
    return [each for each, raylet in raylets if raylet is not None and f":{port} " in " ".join(raylet.cmdline())]


def problem_of(cli: Cli, experiment_id: int) -> str:
    """Returns the problem that the queue shows for the experiment."""
    queue = json.loads(cli("queue", "list", "--json").stdout)
    return next(str(row["suspended"]) for row in queue if row["experiment_id"] == experiment_id)


def master_pid(home: Home) -> int:
    return int(call(home.root, GetStatus()).pid)


@needs("ray")
def test_trials_run_on_the_nodes_of_a_ray_cluster(cli: Cli, home: Home, ray_address: str) -> None:
    """Trials run on the nodes of a Ray cluster, and the end of each is recorded."""
    experiment_id = create(cli, home, ray_address, searcher=GRID)

    search = await_end(home, experiment_id)

    assert search.state == "COMPLETED", search
    trials = trials_of(home, experiment_id)
    assert [(trial.state, trial.steps_completed) for trial in trials] == [("COMPLETED", 20)] * 2


@needs("ray")
def test_a_killed_master_finds_its_attempts_on_ray_again(cli: Cli, home: Home, ray_address: str) -> None:
    """A restarted master finds its running attempts on Ray, and none begins twice."""
    experiment_id = create(cli, home, ray_address, pause_s=0.3)
    await_steps(home, 1, 1)

    os.kill(master_pid(home), signal.SIGKILL)
    await_steps(home, 1, 8)
    cli("master", "up")

    assert await_end(home, experiment_id).state == "COMPLETED"
    events = events_of(home, experiment_id)
    assert [event.attempt for event in events if isinstance(event, AttemptBegun)] == [1]
    assert [event.outcome for event in events if isinstance(event, AttemptOver)] == ["completed"]


@needs("ray")
def test_an_attempt_on_ray_outlives_its_actor(cli: Cli, home: Home, ray_address: str) -> None:
    """If the actor of an attempt is killed, its agent goes on and records the end."""
    experiment_id = create(cli, home, ray_address, pause_s=0.3)
    await_steps(home, 1, 1)

    max(actors(ray_address), key=psutil.Process.create_time).kill()

    assert await_end(home, experiment_id).state == "COMPLETED"
    assert [event.attempt for event in events_of(home, experiment_id) if isinstance(event, AttemptBegun)] == [1]


@needs("ray")
def test_an_attempt_that_ends_without_a_master_gives_its_slots_back(cli: Cli, home: Home, ray_address: str) -> None:
    """An attempt that ends without a master frees its slots, and the next master learns its outcome."""
    experiment_id = create(cli, home, ray_address, pause_s=0.1)
    await_steps(home, 1, 1)
    assert actors(ray_address)
    os.kill(master_pid(home), signal.SIGKILL)

    wait_for(lambda: not actors(ray_address), timeout_s=90)

    assert home.folder(1).running_attempt() is None
    cli("master", "up")
    assert await_end(home, experiment_id).state == "COMPLETED"
    assert [event.attempt for event in events_of(home, experiment_id) if isinstance(event, AttemptBegun)] == [1]


@needs("ray")
def test_an_experiment_on_ray_is_paused_and_goes_on(cli: Cli, home: Home, ray_address: str) -> None:
    """A paused experiment on Ray saves a checkpoint, and goes on from it when it is activated."""
    experiment_id = create(cli, home, ray_address, pause_s=0.3)
    await_steps(home, 1, 2)

    cli("experiment", "pause", str(experiment_id))
    wait_for(lambda: trials_of(home, experiment_id)[0].state == "PAUSED", timeout_s=60)
    paused_at = trials_of(home, experiment_id)[0].steps_completed
    cli("experiment", "activate", str(experiment_id))

    assert await_end(home, experiment_id).state == "COMPLETED"
    assert paused_at is not None
    assert paused_at < 20
    assert f"epoch {paused_at + 1} " in home.folder(1).log_path(2).read_text().splitlines()[0]


@needs("ray")
def test_slots_of_a_ray_cluster_are_listed_with_their_trials(cli: Cli, home: Home, ray_address: str) -> None:
    """The slots of a Ray cluster are listed with their trials."""
    experiment_id = create(cli, home, ray_address, pause_s=600)
    await_steps(home, 1, 1)

    listed = json.loads(cli("slot", "list", "--json").stdout)

    on_ray = [slot for slot in listed if slot["node"]]
    assert len(on_ray) == 8
    assert [slot["trial_id"] for slot in on_ray] == [1] + [None] * 7
    assert on_ray[0]["experiment_id"] == experiment_id
    assert all(slot["trial_id"] is None for slot in listed if not slot["node"])


@needs("ray")
def test_an_experiment_on_ray_is_killed(cli: Cli, home: Home, ray_address: str) -> None:
    """Killing an experiment on Ray ends its processes."""
    experiment_id = create(cli, home, ray_address, pause_s=600)
    await_steps(home, 1, 1)

    done = cli("experiment", "kill", str(experiment_id))

    assert done.returncode == 0, done.stderr
    assert await_end(home, experiment_id).state == "CANCELED"
    assert home.folder(1).running_attempt() is None


@needs("ray")
def test_experiments_that_no_cluster_can_run_are_refused(
    cli: Cli, home: Home, ray_address: str, tmp_path: Path
) -> None:
    """An experiment that the cluster cannot run is refused at once and leaves nothing."""

    def refusal(address: str, slots: int) -> str:
        config = CONFIG.format(address=address, pause_s=0, slots=slots, searcher=SINGLE)
        (tmp_path / "ray.yaml").write_text(config)
        began_at = time.monotonic()
        done = cli("experiment", "create", "ray.yaml")
        assert done.returncode != 0
        assert time.monotonic() - began_at < 40
        return " ".join(done.stderr.split())

    assert "wants 9 slots for each trial" in (words := refusal(ray_address, 9))
    assert f"the Ray cluster at {ray_address} has nodes of 8 slots: give a number that one node has, or that" in words
    assert "the Ray cluster at 127.0.0.1:9 cannot be used: [Errno 111]" in refusal("127.0.0.1:9", 1)
    assert list(home.experiments.glob("*/experiment.json")) == []


HOLD_ONE_CPU_OF_EACH_NODE = """
import sys
import ray
from ray.util.placement_group import placement_group

ray.init(sys.argv[1])
ray.get(placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD").ready())
print("held", flush=True)
sys.stdin.read()
"""


@needs("ray")
def test_a_trial_waits_for_one_node_with_all_its_slots(cli: Cli, home: Home, two_ray_nodes: str) -> None:
    """A trial waits until one node has all its slots, and the queue says so."""
    holder = subprocess.Popen(
        [environment("ray").python, "-c", HOLD_ONE_CPU_OF_EACH_NODE, two_ray_nodes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert any("held" in line for line in holder.stdout)

        large = create(cli, home, two_ray_nodes, slots=2)
        wait_for(lambda: bool(problem_of(cli, large)), timeout_s=60)
        small = create(cli, home, two_ray_nodes)

        assert problem_of(cli, large) == "a trial waits for 2 free slots on one node, of which each has 1 at most"
        nodes = {slot["node"] for slot in json.loads(cli("slot", "list", "--json").stdout)} - {""}
        assert len(nodes) == 2, "each has a name of its own, although both are on one host"
        assert await_end(home, small).state == "COMPLETED"
        holder.stdin.close()
    assert await_end(home, large).state == "COMPLETED"


@needs("hosts", "ray")
@pytest.mark.timeout(300)
def test_a_trial_goes_on_elsewhere_when_its_node_dies(
    cli: Cli, home: Home, tmp_path: Path, ray_on_hosts: RayOnHosts
) -> None:
    """If a trial's node dies, it resumes elsewhere from its newest checkpoint, which counts as a restart."""
    ray_on_hosts.join(1)
    experiment_id = create(partial(ray_on_hosts.cli, cwd=tmp_path), home, ray_on_hosts.address, pause_s=0.5)
    await_steps(home, 1, 3)

    ray_on_hosts.hosts[1].kill()
    ray_on_hosts.join(2)

    assert await_end(home, experiment_id).state == "COMPLETED"
    events = events_of(home, experiment_id)
    ends = [(event.outcome, event.reason) for event in events if isinstance(event, AttemptOver)]
    assert ends == [("failed", "its node h2 has died"), ("completed", "")]
    first = home.folder(1).log_path(2).read_text().splitlines()[0]
    assert first.endswith(" on h3")
    assert int(first.split()[1]) >= 3


@needs("hosts", "ray")
@pytest.mark.timeout(300)
def test_a_trial_begins_elsewhere_when_its_node_dies_before(
    cli: Cli, home: Home, tmp_path: Path, ray_on_hosts: RayOnHosts
) -> None:
    """If a node dies before a trial has begun there, the trial begins elsewhere without a restart."""
    ray_on_hosts.join(1)
    run = partial(ray_on_hosts.cli, cwd=tmp_path)
    experiment_id = create(run, home, ray_on_hosts.address, "--paused")
    ray_on_hosts.suspend(1)
    run("experiment", "activate", str(experiment_id))
    wait_for(lambda: any(found.running for found in call(home.root, GetStatus()).experiments))
    ray_on_hosts.hosts[1].kill()
    ray_on_hosts.join(2)

    assert await_end(home, experiment_id).state == "COMPLETED"
    assert [event.outcome for event in events_of(home, experiment_id) if isinstance(event, AttemptOver)] == [
        "completed"
    ]
    assert home.folder(1).log_path(1).read_text().splitlines()[0].endswith(" on h3")


@needs("ray")
@pytest.mark.timeout(300)
def test_an_experiment_waits_for_a_cluster_that_goes_away(cli: Cli, home: Home, tmp_path: Path) -> None:
    """An experiment whose cluster goes away waits for it and then resumes; others go on."""
    with reserved_port() as port:
        with ray_node("--head", f"--port={port}", "--num-cpus=1"):
            experiment_id = create(cli, home, f"127.0.0.1:{port}", pause_s=0.3)
            await_steps(home, 1, 3)
        wait_for(lambda: bool(problem_of(cli, experiment_id)), timeout_s=120)
        assert f"the Ray cluster at 127.0.0.1:{port} cannot be used" in problem_of(cli, experiment_id)
        text = CONFIG.format(address="", pause_s=0, slots=1, searcher=SINGLE).replace('address: "", ', "")
        (tmp_path / "here.yaml").write_text(text.replace("engine: ray", "engine: local"))
        here = cli("experiment", "create", "here.yaml").stdout.split()[-1]
        assert await_end(home, int(here)).state == "COMPLETED"

        with ray_node("--head", f"--port={port}", "--num-cpus=1"):
            assert await_end(home, experiment_id).state == "COMPLETED"
    ends = [(event.outcome, event.reason) for event in events_of(home, experiment_id) if isinstance(event, AttemptOver)]
    assert [outcome for outcome, _ in ends] == ["failed", "completed"], ends
    assert home.folder(1).log_path(2).read_text().splitlines()[0] != "epoch 1"
