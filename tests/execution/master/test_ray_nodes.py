"""Trials that lie on several nodes of a Ray cluster: all or none, joined by the launcher, and ended together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from execution.master.ray_clusters import Cli
from execution.master.searches import await_end, events_of
from execution.master.two_nodes import TRAIN, expected_losses, losses, steps_of_ranks
from execution.workers.engines import ray_node
from parts import needs
from ports import reserved_port
from processes import wait_for

from core_sdk._ground.records import AttemptOver
from core_sdk._home import Home, open_view

pytestmark = [needs("ray"), pytest.mark.timeout(300)]

CONFIG = """
name: wide
entrypoint: python -m launch.torch_distributed -- python train.py
hyperparameters: {{pause_s: {pause_s}, steps: 12}}
searcher: {{name: single, metric: loss, max_length: 20}}
resources: {resources}
"""


MODEL_DEF = """
import torch
from core_sdk import pytorch

class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        print("rank", context.distributed.rank, "of", context.distributed.size, flush=True)

    def build_training_data_loader(self):
        inputs = torch.linspace(-1, 1, 64).unsqueeze(1)
        dataset = torch.utils.data.TensorDataset(inputs, 2 * inputs + 1)
        return pytorch.DataLoader(dataset, batch_size=self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader

    def evaluate_batch(self, batch):
        inputs, targets = batch
        return {"loss": (self.model(inputs) - targets).square().mean()}

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.evaluate_batch(batch)["loss"]
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}
"""
WORKERS = """
from core_sdk import train
from core_sdk.train import ScalingConfig
from core_sdk.train.torch import TorchTrainer

def train_func():
    ranks = train.get_context()
    print("rank", ranks.get_world_rank(), "of", ranks.get_world_size(), flush=True)
    for step in range(1, 5):
        train.report({"loss": 1 / step})

TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()
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


@pytest.mark.parametrize(
    "entrypoint", ["model_def:LineTrial", "python -m launch.torch_distributed -- python workers.py"]
)
def test_trainers_train_in_the_ranks_of_both_nodes(cli: Cli, home: Home, small_nodes: str, entrypoint: str) -> None:
    """A Trial and a TorchTrainer train in the ranks that the launchers of two nodes start, and report once."""
    place = home.root.parent
    (place / "model_def.py").write_text(MODEL_DEF)
    (place / "workers.py").write_text(WORKERS)
    (place / "trainer.yaml").write_text(
        f"name: trainer\nentrypoint: {entrypoint}\nhyperparameters: {{global_batch_size: 8}}\n"
        "searcher: {name: single, metric: loss, max_length: {batches: 32}}\nmin_validation_period: {batches: 8}\n"
        f'resources: {{engine: ray, address: "{small_nodes}", slots_per_trial: 2}}\n'
    )
    created = cli("experiment", "create", "trainer.yaml", ".")
    assert created.returncode == 0, created.stderr

    ended = await_end(home, int(created.stdout.split()[-1]))

    log = home.folder(1).read_log(1, 0, 10**6).decode()
    assert ended.state == "COMPLETED", log
    assert [line for line in sorted(log.splitlines()) if " of 2" in line] == [
        f"[rank={rank}] rank {rank} of 2" for rank in (0, 1)
    ]
    with open_view(home) as view:
        assert len({report.steps_completed for report in view.reports(1) if "loss" in report.metrics}) == 4
