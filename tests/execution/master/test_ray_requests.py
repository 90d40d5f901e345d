"""Trials ask a Ray cluster for nodes with labels and accelerators, an environment, and nodes that are to come."""

from __future__ import annotations

import contextlib
import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from execution.master.ray_clusters import Cli
from execution.master.searches import await_end, events_of
from execution.workers.engines import VARIABLES, ray_node
from frameworks.environments import environment
from parts import needs
from ports import reserved_port
from processes import wait_for

from core_sdk._execution.master.pools.ray._environment import in_runtime_env
from core_sdk._execution.master.pools.ray._messages import ClusterNode
from core_sdk._execution.master.pools.ray._pool import fits, num_nodes
from core_sdk._ground.config import RayOptions, Resources
from core_sdk._ground.records import AttemptBegun, AttemptOver, CommandRecord
from core_sdk._home import Home


@pytest.mark.parametrize(
    ("slots", "sizes", "wanted", "number"),
    [
        (8, [8, 8], None, 1),
        (16, [8, 8], None, 2),
        (12, [8, 8], None, 2),
        (9, [8, 8], None, None),
        (9, [8, 8, 8], None, 3),
        (10, [8, 2, 2], None, None),
        (8, [8, 4, 4], 2, 2),
        (16, [8], 2, None),
        (0, [0], None, 1),
        (1, [], None, None),
    ],
)
def test_a_trial_takes_the_fewest_nodes_over_which_its_slots_divide(
    slots: int, sizes: Sequence[int], wanted: int | None, number: int | None
) -> None:
    """A trial takes the fewest nodes with even shares, or as many as the configuration says; None if there are none."""
    resources = Resources(slots_per_trial=slots, engine="ray", ray=RayOptions(nodes=wanted))

    assert num_nodes(resources, sizes) == number


@pytest.mark.parametrize(
    ("options", "fit"),
    [
        (RayOptions(), True),
        (RayOptions(labels={"zone": "a"}), True),
        (RayOptions(labels={"zone": "!a"}), False),
        (RayOptions(labels={"zone": "in(a, b)", "spot": "!in(yes)"}), True),
        (RayOptions(labels={"spot": "no"}), False),
        (RayOptions(accelerator_type="A100"), True),
        (RayOptions(accelerator_type="H100"), False),
        (RayOptions(resources={"disk": 2}), True),
        (RayOptions(resources={"disk": 3}), False),
    ],
)
def test_a_node_must_have_what_a_trial_asks_for(options: RayOptions, fit: bool) -> None:
    """Labels are Ray's selectors; accelerators and other resources belong to the node."""
    resources = {"CPU": 4.0, "accelerator_type:A100": 1.0, "disk": 2.0}
    node = ClusterNode("1", "h1", "CPU", 4, 0, {"zone": "a"}, resources)

    assert fits(node, options) == fit


CONFIG = """
name: asking
entrypoint: [python, train.py]
hyperparameters: {{x: {{type: categorical, vals: [1, 2]}}}}
searcher: {{name: grid, metric: loss, max_length: 20, max_concurrent_trials: 2}}
resources:
  engine: ray
  address: "{address}"
  ray:
    labels: {{zone: "in(b,c)"}}
    accelerator_type: A100
    runtime_env: {{env_vars: {{COLOR: blue}}}}
    autoscaling: true
"""

TRAIN = """
import os, time
from core_sdk import core

with core.init() as context:
    first = 1
    if context.info.latest_checkpoint is not None:
        with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
            first = int((path / "epoch").read_text()) + 1
    last = 1000 if first == 1 and context.info.trial.hparams["x"] == 1 else first + 2
    for epoch in range(first, last + 1):
        context.train.report_validation_metrics(steps_completed=epoch, metrics={"loss": 1 / epoch})
        if context.preempt.should_preempt() or epoch == last:
            with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                (path / "epoch").write_text(str(epoch))
            break
        print("epoch", epoch, os.environ["COLOR"], flush=True)
        time.sleep(0.5)
"""

DEMAND = """
import sys
from ray.autoscaler.v2.sdk import get_cluster_status

for group in get_cluster_status(sys.argv[1]).resource_demands.placement_group_demand:
    for request in group.bundles_by_count:
        print(group.state, sorted(request.bundle), request.count)
"""


@needs("ray")
@pytest.mark.timeout(400)
def test_trials_ask_for_nodes_that_are_to_come_and_leave_those_that_end(cli: Cli, home: Home, tmp_path: Path) -> None:
    """Waiting trials are seen by an autoscaler; a node that is drained stops its trial with a checkpoint."""
    python, ray = str(environment("ray").python), str(environment("ray").program("ray"))
    fitting = ("--num-cpus=1", '--resources={"accelerator_type:A100": 1}')
    with reserved_port() as port, contextlib.ExitStack() as nodes:
        address = f"127.0.0.1:{port}"
        nodes.enter_context(ray_node("--head", f"--port={port}", "--num-cpus=1", "--labels=zone=a"))

        def demand() -> list[str]:
            asked = [python, "-c", DEMAND, address]
            return subprocess.run(asked, capture_output=True, text=True, env=os.environ | VARIABLES).stdout.splitlines()

        (tmp_path / "train.py").write_text(TRAIN)
        (tmp_path / "asking.yaml").write_text(CONFIG.format(address=address))
        created = cli("experiment", "create", "asking.yaml")
        assert created.returncode == 0, created.stderr
        wait_for(lambda: demand() == ["PENDING ['CPU', 'accelerator_type:A100'] 1"] * 2, timeout_s=60)
        nodes.enter_context(ray_node(f"--address={address}", "--labels=zone=b", *fitting))
        wait_for(lambda: "epoch 3 blue" in home.folder(1).read_log(1, 0, 10**6).decode(), timeout_s=90)
        alone = demand()
        first = next(event for event in events_of(home, 1) if isinstance(event, AttemptBegun))
        why = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot", "--deadline-remaining-seconds=60"]
        subprocess.run([ray, "drain-node", f"--address={address}", f"--node-id={first.boot}", *why], check=True)
        wait_for(lambda: any(isinstance(event, AttemptOver) for event in events_of(home, 1)), timeout_s=30)
        nodes.enter_context(ray_node(f"--address={address}", "--labels=zone=c", *fitting))

        assert await_end(home, 1).state == "COMPLETED"
        assert demand() == []
    assert alone == ["PENDING ['CPU', 'accelerator_type:A100'] 1"]
    ends = [event.outcome for event in events_of(home, 1) if isinstance(event, AttemptOver)]
    assert ends == ["paused", "completed", "completed"]
    begun = [event.boot for event in events_of(home, 1) if isinstance(event, AttemptBegun)]
    assert begun[0] == first.boot not in begun[1:]


ENVIRONMENT = """
name: in-an-environment
entrypoint: [python, train.py]
searcher: {{name: single, metric: loss, max_length: 1}}
resources: {{engine: ray, address: "{address}", ray: {{runtime_env: {{working_dir: "{code}"}}}}}}
"""


@needs("ray")
@pytest.mark.timeout(400)
def test_a_working_directory_is_handed_on(cli: Cli, home: Home, tmp_path: Path, ray_address: str) -> None:
    """The command runs in the directory that Ray has brought to the node."""
    with zipfile.ZipFile(tmp_path / "shipped.zip", "w") as archive:
        script = "import os\nfrom core_sdk import core\n\nwith core.init():\n    print(os.listdir())\n"
        archive.writestr("shipped/train.py", script)
    config = ENVIRONMENT.format(address=ray_address, code=f"file://{tmp_path}/shipped.zip")
    (tmp_path / "environment.yaml").write_text(config)

    created = cli("experiment", "create", "environment.yaml")

    assert created.returncode == 0, created.stderr
    assert await_end(home, 1).state == "COMPLETED", home.folder(1).read_log(1, 0, 10**5)
    assert home.folder(1).read_log(1, 0, 10**5) == b"['train.py']\n"


def test_a_command_runs_with_what_a_runtime_environment_gives_it(tmp_path: Path) -> None:
    """The environment's programs come first, its variables count, and code that was submitted keeps its directory."""
    (tmp_path / "bin").mkdir()
    python, cwd = tmp_path / "bin" / "python", tmp_path / "shipped"
    python.touch()
    command = CommandRecord(
        argv=["/usr/bin/python", "train.py"], cwd="/code", environment={"PATH": "/usr/bin", "A": "1"}
    )

    def inside(given: dict[str, Any], *, has_code: bool = False) -> CommandRecord:
        return in_runtime_env(command, given, python=python, cwd=cwd, has_code=has_code)

    assert inside({}) == command
    installed = inside({"pip": ["einops"], "env_vars": {"A": "2"}})
    assert installed.argv == [str(python), "train.py"]
    assert installed.environment == {"PATH": f"{python.parent}:/usr/bin", "A": "2"}
    assert inside({"working_dir": "gcs://x.zip"}).cwd == str(cwd)
    assert inside({"working_dir": "gcs://x.zip"}, has_code=True).cwd == "/code"
