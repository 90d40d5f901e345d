"""A model is trained on several ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from processes import TIMEOUT_S
from pytorch.ranks import Ranks
from torch import nn

from core_sdk import pytorch
from core_sdk.pytorch._context import run_of


class Line(nn.Module):
    """A model with one weight of 0 and one unused weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.unused = nn.Parameter(torch.zeros(1))
        self.name = "line"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def windows(home: str) -> None:
    """Returns two windows of two batches; gradients are 1 to 4 on the first rank, ten times as large on the other."""
    import os

    os.environ["CORE_SDK_HOME"] = home
    with pytorch.init(aggregation_frequency=2) as context:
        rank, runtime = context.distributed.rank, run_of(context).runtime
        model = Line()
        nn.init.constant_(model.weight, rank)
        wrapped = context.wrap_model(model, find_unused_parameters=True, broadcast_buffers=False)
        optimizer = context.wrap_optimizer(torch.optim.SGD(wrapped.parameters(), lr=1.0))
        gradients, weights = [], []
        for index in range(4):
            runtime.begin_batch(index, is_first=index == 0)
            context.backward(wrapped(torch.full((1,), (index + 1) * 10.0**rank)).sum())
            gradients.append(model.weight.grad.item())  # type: ignore[union-attr]
            context.step_optimizer(optimizer)
            runtime.end_batch(index + 1, None)
            weights.append(model.weight.item())
        frozen = context.wrap_model(Line().requires_grad_(False))
        said = {
            "gradients": gradients,
            "weights": weights,
            "attributes": [wrapped.name, type(wrapped).__name__, type(frozen).__name__],
            "finds_unused": wrapped.find_unused_parameters,
            "state": [sorted(state) for state in runtime.state_dict()["models_state_dict"]],
        }
        print(json.dumps(said))


def test_gradients_are_averaged_over_ranks_once_a_window(ranks: Ranks, tmp_path: Path) -> None:
    """Gradients are averaged over the ranks at the end of each accumulation window."""
    first, second = (json.loads(printed) for printed in ranks.run(windows, 2, tmp_path / "home"))

    assert first["gradients"] == [1, (3 + 30) / 2, 3, (7 + 70) / 2]
    assert second["gradients"] == [10, (3 + 30) / 2, 30, (7 + 70) / 2]
    assert first["weights"] == second["weights"] == [0, -8.25, -8.25, -27.5]
    assert first["attributes"] == ["line", "DistributedDataParallel", "Line"]
    assert first["finds_unused"]
    assert first["state"] == [["unused", "weight"]] * 2


def roc_auc(values: list[Any]) -> list[Any]:
    return values


def reduce(home: str) -> None:
    """Updates reducers with three batches on one rank and two on the other."""
    import os

    os.environ["CORE_SDK_HOME"] = home
    with pytorch.init(hparams={"global_batch_size": 9}) as context:
        rank = context.distributed.rank
        listed = context.wrap_reducer(roc_auc, "listed")
        for index in range(3 - rank):
            listed.update(2 * index + rank)
        print(json.dumps([context.reduce_metrics(for_training=True), context.get_per_slot_batch_size()]))


def test_values_of_all_ranks_reach_a_reducer_in_the_order_of_the_batches(ranks: Ranks, tmp_path: Path) -> None:
    """A reducer gets the values of all ranks in the order of the batches."""
    first, second = (json.loads(printed) for printed in ranks.run(reduce, 2, tmp_path / "home"))

    assert first == second == [{"listed": [0, 1, 2, 3, 4]}, 4]


LAUNCHED = """
import json, torch
from torch import distributed as dist
from core_sdk import pytorch

with pytorch.init(name="launched") as context:
    said = [dist.get_backend(), context.distributed.rank, context.distributed.size, context.get_trial_id()]
    model = context.wrap_model(torch.nn.Linear(1, 1))
    said += [type(model).__name__, torch.initial_seed() == context.get_trial_seed()]
with open(f"said.{context.distributed.rank}", "w") as file:
    json.dump([*said, dist.is_initialized()], file)
"""


def test_a_launched_script_needs_nothing_but_init(tmp_path: Path) -> None:
    """A launched script needs only init(), which begins and ends the process group."""
    (tmp_path / "train.py").write_text(LAUNCHED)

    launch = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--", "train.py"]
    subprocess.run(launch, cwd=tmp_path, check=True, timeout=TIMEOUT_S)

    for rank in range(2):
        said = json.loads((tmp_path / f"said.{rank}").read_text())
        assert said == ["gloo", rank, 2, 1, "DistributedDataParallel", True, False]
