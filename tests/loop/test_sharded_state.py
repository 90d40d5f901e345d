"""The state of a loop of one's own whose model is split over ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from pytorch.ranks import Ranks
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from core_sdk import core
from core_sdk._analysis.tensors._reading import opened
from core_sdk._home.storage import DirectoryStorage
from core_sdk.client import Tracker
from core_sdk.loop import State
from core_sdk.loop._sharded_tensors import planned


def train(job: str, num_steps: str, result: str, splits: str = "True") -> None:
    """Goes on to so many steps, and writes the weights that the chief sees then."""
    distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed, job_id=job) as core_context:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1))
        if splits == "True":
            fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        progress = {"steps": 0}
        state = State(model=model, optimizer=optimizer, progress=progress)
        state.restore(core_context)
        while progress["steps"] < int(num_steps):
            batch = torch.randn(6, 3, generator=torch.Generator().manual_seed(progress["steps"]))
            model(batch.chunk(distributed.size)[distributed.rank]).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            progress["steps"] += 1
            state.save(core_context, steps_completed=progress["steps"], wait=False)
        whole = {name: each.full_tensor() if isinstance(each, DTensor) else each for name, each in weights(model)}
        if distributed.is_chief:
            torch.save(whole, result)


def count_plans() -> None:
    """Saves four times, with one more tensor from the third time on, and prints how often ranks planned."""
    distributed = core.DistributedContext.from_torch_distributed()
    with (
        core.init(distributed=distributed) as core_context,
        patch("core_sdk.loop._sharded_tensors.planned", wraps=planned) as plan,
    ):
        model = torch.nn.Linear(3, 5)
        fully_shard(model)
        values: dict[str, Any] = {}
        state = State(model=model, values=values)
        counts = []
        for step in range(4):
            if step == 2:
                values["weight"] = model.state_dict()["weight"]
            with torch.no_grad():
                model.weight += 1
            state.save(core_context, steps_completed=step, wait=False)
            counts.append(plan.call_count)
        print(*counts)


def weights(model: torch.nn.Module) -> list[tuple[str, Any]]:
    return list(model.state_dict().items())


def test_it_is_stored_in_parts_and_goes_on_exactly(ranks: Ranks, tmp_path: Path) -> None:
    """A sharded training is stored in parts and resumes exactly; all files load with `weights_only=True`."""
    ranks.run(train, 2, "whole", 4, tmp_path / "whole")
    ranks.run(train, 2, "stopped", 2, tmp_path / "half")

    ranks.run(train, 2, "stopped", 4, tmp_path / "stopped")

    torch.testing.assert_close(torch.load(tmp_path / "stopped"), torch.load(tmp_path / "whole"), rtol=0, atol=0)
    parts = list(Path(os.environ["CORE_SDK_HOME"]).glob("checkpoints/*/*.pt"))
    assert {part.name for part in parts} == {"state.pt", "sharded_tensors.0.pt", "sharded_tensors.1.pt"}
    for part in parts:
        torch.load(part, weights_only=True)
    newest = Tracker().list_checkpoints()[0]
    shapes = {tensor.name: tensor.shape for tensor in newest.tensors()}
    assert (shapes["model.0.weight"], shapes["optimizer.state.0.exp_avg"]) == ((5, 3), (5, 3))
    with opened(DirectoryStorage(parts[0].parents[1]), newest.uuid) as (source,):
        assert source.load(["model.0.weight"])["model.0.weight"].shape == (5, 3)


def test_the_ranks_plan_once_as_long_as_the_tensors_stay_the_same(ranks: Ranks) -> None:
    """The ranks plan the parts again only when the tensors have changed."""
    assert ranks.run(count_plans, 2) == ["1 1 2 2\n"] * 2


@pytest.mark.parametrize(("num_ranks", "splits"), [(3, True), (1, True), (1, False)])
def test_it_goes_on_with_any_number_of_ranks(ranks: Ranks, tmp_path: Path, num_ranks: int, splits: bool) -> None:
    """A sharded training resumes on any number of ranks and with a whole model."""
    ranks.run(train, 2, "whole", 4, tmp_path / "whole")
    ranks.run(train, 2, "stopped", 2, tmp_path / "half")

    ranks.run(train, num_ranks, "stopped", 4, tmp_path / "stopped", splits)

    torch.testing.assert_close(torch.load(tmp_path / "stopped"), torch.load(tmp_path / "whole"), rtol=1e-4, atol=1e-5)
