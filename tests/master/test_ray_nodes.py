"""Trials that lie on several nodes of a Ray cluster: all or none, joined by the launcher, and ended together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from master.ray_clusters import Cli
from master.searches import await_end, events_of
from master.two_nodes import TRAIN, expected_losses, losses, steps_of_ranks
from parts import needs
from ports import reserved_port
from processes import wait_for
from workers.engines import ray_node

from core_sdk.records import AttemptOver
from core_sdk.tracking import Home, open_view

pytestmark = [needs("ray"), pytest.mark.timeout(300)]

CONFIG = """
name: wide
entrypoint: python -m launch.torch_distributed -- python train.py
hyperparameters: {{pause_s: {pause_s}, steps: 12}}
searcher: {{name: single, metric: loss, max_length: 20}}
resources: {resources}
"""


@pytest.fixture
def small_nodes() -> Iterator[str]:
    """The address of a Ray cluster of two nodes, with one CPU each, which see the same files."""
    with (
        reserved_port() as port,
        ray_node("--head", f"--port={port}", "--num-cpus=1"),
        ray_node(f"--address=127.0.0.1:{port}", "--num-cpus=1"),
    ):
        yield f"127.0.0.1:{port}"


def create(cli: Cli, home: Home, resources: str, pause_s: float) -> int:
    """Creates an experiment and returns its id."""
    (home.root.parent / "train.py").write_text(TRAIN)
    (home.root.parent / "wide.yaml").write_text(CONFIG.format(resources=resources, pause_s=pause_s))
    done = cli("experiment", "create", "wide.yaml")
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def state_of(home: Home, trial_id: int = 1) -> str:
    with open_view(home) as view:
        return view.trial(trial_id).state


def test_a_trial_over_two_nodes_trains_as_two_ranks_on_one(cli: Cli, home: Home, small_nodes: str) -> None:
    """It has the same losses, also over a pause, and one log; the launchers join each other without an option."""
    wide = create(cli, home, f'{{engine: ray, address: "{small_nodes}", slots_per_trial: 2}}', 0.3)
    wait_for(lambda: home.folder(1).exists() and "step 2 " in home.folder(1).read_log(1, 0, 10**6).decode(), 120)
    cli("experiment", "pause", str(wide))
    wait_for(lambda: state_of(home) == "PAUSED", 60)
    stored = len(losses(home))
    cli("experiment", "activate", str(wide))
    assert await_end(home, wide).state == "COMPLETED"
    narrow = create(cli, home, "{slots_per_trial: 2}", 0)
    assert await_end(home, narrow).state == "COMPLETED"

    assert 0 < stored < 12
    assert losses(home, 1) == losses(home, 2) == pytest.approx(expected_losses(2, 12))
    assert steps_of_ranks(home, 1) == {0: list(range(1, 13)), 1: list(range(1, 13))}
    assert [event.outcome for event in events_of(home, wide) if isinstance(event, AttemptOver)] == [
        "paused",
        "completed",
    ]
    lines = home.folder(1).log_path(1).read_text().splitlines()
    told = sorted(line.partition(" on ")[0] for line in lines if "told" in line)
    address = told[0].split("'")[1]
    assert told == [
        f"[rank=0] told ['{address}', '{address}'] 0 [1, 1] [0]",
        f"[rank=1] told ['{address}', '{address}'] 1 [1, 1] [0]",
    ]
    steps = [line.partition(" on ")[0] for line in lines if " step " in line]
    assert sorted(steps) == sorted(f"[rank={rank}] step {step}" for rank in (0, 1) for step in range(1, stored + 1))
