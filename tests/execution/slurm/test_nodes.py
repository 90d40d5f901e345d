"""Trainings over two nodes of a Slurm cluster, by each launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from execution.slurm.cluster import Cluster
from frameworks.test_frameworks_example import training
from parts import needs

from core_sdk._ground.records import Report
from core_sdk._home import Home, open_view
from core_sdk._home.journal import read_records

pytestmark = needs("hosts", "slurm")

_CORE_SDK = [sys.executable, "-m", "core_sdk._interfaces.cli"]
# DeepSpeed may compile what it needs at its first start.
_TIMEOUT_S = 300
_PLACES = Path(__file__).parents[2] / "nodes" / "places.py"
_LOSSES = """\
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from core_sdk import core

dist.init_process_group("gloo")
torch.manual_seed(1)
with core.init(distributed="torch") as context:
    layers = torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(1, 21):
        batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(2 * step + context.distributed.rank))
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if context.distributed.is_chief:
            context.train.report_training_metrics(step, {"loss": total.item()})
dist.destroy_process_group()
"""


def run(slurm: Cluster, place: Path, options: Sequence[str], command: Sequence[str]) -> None:
    argv = [*_CORE_SDK, "run", *options, "--", *command]
    code, output, errors = slurm.try_to_run(argv, cwd=place, timeout_s=_TIMEOUT_S)
    assert code == 0, output + errors


def losses(home: Home, trial_id: int) -> list[object]:
    records = read_records(home.trial(trial_id).journal_path(1))
    return [record.metrics for record in records if isinstance(record, Report)]


def test_two_nodes_have_the_losses_of_two_ranks_on_one(slurm: Cluster, home: Home, place: Path) -> None:
    """A training over two nodes computes, to the last bit, what two ranks on one node do."""
    (place / "losses.py").write_text(_LOSSES)
    launcher = [sys.executable, "-m", "launch.torch_distributed", "losses.py"]

    run(slurm, place, ["--engine=slurm", "--nodes=2", "--slots=2"], launcher)
    run(slurm, place, ["--slots=2"], launcher)

    assert losses(home, 1) == losses(home, 2) and len(losses(home, 1)) == 20


@pytest.mark.timeout(2 * _TIMEOUT_S)
@pytest.mark.parametrize("framework", [pytest.param(each, marks=needs(each)) for each in ("deepspeed", "horovod")])
def test_frameworks_join_the_nodes_of_a_job(
    slurm: Cluster, home: Home, place: Path, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed's and Horovod's launchers are started on each node, and need neither ssh nor an option."""
    for name, value in training(framework).variables.items():
        monkeypatch.setenv(name, value)
    python = str(training(framework).python)

    run(
        slurm,
        place,
        ["--engine=slurm", "--nodes=2", "--slots=2"],
        [python, "-m", f"launch.{framework}", "--", str(_PLACES), framework],
    )

    with open_view(home) as view:
        assert view.trial(1).state == "COMPLETED"
    output = home.trial(1).log_path(1).read_text()
    for rank in range(2):
        assert f"[rank={rank}] 2 ranks on 2 nodes: ('h1', 0, 0, 1) ('h2', 1, 0, 1)" in output
