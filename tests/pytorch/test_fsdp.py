"""Models whose parameters are split over ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch.ranks import Ranks
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from core_sdk._runtime.strategies._fsdp import FsdpStrategy


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 6)
        self.outer = nn.Linear(6, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.outer(torch.tanh(self.inner(inputs)))
        return inputs + outputs


class Model(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(3, 4)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last = nn.Linear(4, 1)
        self.register_buffer("scale", torch.full((1,), float(seed)))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        outputs: torch.Tensor = self.last(hidden) * self.scale
        return outputs


def wrapped(**options: Any) -> nn.Module:
    """Returns a wrapped model whose weights differ between ranks before it is wrapped."""
    return FsdpStrategy().wrap_model(Model(seed=1 + int(os.environ["RANK"])), torch.device("cpu"), options)


def units(model: nn.Module) -> set[str]:
    return {name for name, module in model.named_modules() if isinstance(module, FSDPModule)}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def elements_of_lists() -> None:
    assert units(wrapped()) == {"", "blocks.0", "blocks.1"}


def chosen_classes() -> None:
    assert units(wrapped(units=(Block, nn.Linear))) == {
        "",
        "first",
        "last",
        *(f"blocks.{index}{part}" for index in (0, 1) for part in ("", ".inner", ".outer")),
    }


def refuses_absent_classes() -> None:
    with pytest.raises(ValueError, match="no module of the Model is a unit"):
        wrapped(units=nn.Conv2d)


def has_the_weights_of_the_chief() -> None:
    model = wrapped()

    for name, value in model.state_dict().items():
        assert isinstance(value, DTensor) == (name != "scale")
        assert torch.equal(whole(value), Model(seed=1).state_dict()[name]), name


def trains_as_one_model() -> None:
    """Trains sharded and on one rank with the same batches, and compares the weights."""
    strategy, model, alone = FsdpStrategy(), wrapped(), Model(seed=1)
    optimizers = [torch.optim.AdamW(each.parameters(), 0.1) for each in (model, alone)]
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    for batch_index in range(6):
        is_stepping = batch_index % 2 == 1
        strategy.set_gradient_sync(model, is_stepping)
        batch = torch.randn(4 * num_ranks, 3, generator=torch.Generator().manual_seed(batch_index))
        model(batch[4 * rank : 4 * rank + 4]).square().mean().backward()
        alone(batch).square().mean().backward()
        if is_stepping:
            for each, optimizer in zip((model, alone), optimizers, strict=True):
                nn.utils.clip_grad_norm_(each.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()

    for name, value in alone.state_dict().items():
        torch.testing.assert_close(whole(model.state_dict()[name]), value)


@pytest.mark.parametrize("check", [elements_of_lists, chosen_classes, refuses_absent_classes])
def test_units_are_chosen(ranks: Ranks, check: Any) -> None:
    """By default the elements of module lists are sharded, and otherwise modules of chosen classes."""
    ranks.run(check, 1)


def test_all_ranks_begin_with_the_weights_of_the_chief(ranks: Ranks) -> None:
    """All ranks begin with the chief's weights, even if their seeds differ."""
    ranks.run(has_the_weights_of_the_chief, 2)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_sharded_model_trains_as_a_whole_one(ranks: Ranks, num_ranks: int) -> None:
    """A sharded model with accumulated and clipped gradients trains like a whole one."""
    ranks.run(trains_as_one_model, num_ranks)


def test_a_script_without_a_launcher_is_a_group_of_one(ranks: Ranks, tmp_path: Path) -> None:
    """A script without a launcher trains a sharded model on one rank."""
    ranks.run(begins_its_own_group, 1)


def begins_its_own_group() -> None:
    torch.distributed.destroy_process_group()

    assert isinstance(next(wrapped().parameters()), DTensor)
