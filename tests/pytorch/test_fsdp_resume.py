"""A training whose model is split over ranks is stopped, and goes on, on any number of ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch.ranks import Ranks
from pytorch.trials import LineTrial, StopAfter, fixed_seed
from torch import nn
from torch.distributed.tensor import DTensor

from core_sdk.pytorch import Batch, PyTorchTrialContext, Trainer, init

GLOBAL_BATCH_SIZE = 12
NUM_BATCHES = 5


class FsdpTrial(LineTrial):
    def __init__(self, context: PyTorchTrialContext, strategy: str, dropout: float) -> None:
        self.strategy = strategy
        self.dropout = dropout
        super().__init__(context, batch_size=GLOBAL_BATCH_SIZE // context.distributed.size)

    def wrapped_model(self) -> nn.Module:
        layers = nn.ModuleList([nn.Linear(1, 5), nn.Dropout(self.dropout), nn.Linear(5, 1)])
        return self.context.wrap_model(Layers(layers), strategy=self.strategy)

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=0.1)


class TwoModelsTrial(FsdpTrial):
    """A trial of two models with their own optimizers, like a GAN."""

    def __init__(self, context: PyTorchTrialContext, strategy: str, dropout: float) -> None:
        super().__init__(context, strategy, dropout)
        # Of other sizes than the first one, in the same places.
        self.critic = context.wrap_model(Layers(nn.ModuleList([nn.Linear(1, 3), nn.Linear(3, 1)])), strategy=strategy)
        self.critic_optimizer = context.wrap_optimizer(torch.optim.AdamW(self.critic.parameters(), lr=0.1))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, _ = batch
        self.context.backward((self.critic(self.model(x).detach()) - x).square().mean())
        self.context.step_optimizer(self.critic_optimizer)
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        self.trained.append((epoch_idx, batch_idx, [], self.critic(x).sum().item(), 0.0))
        return metrics


class Layers(nn.Module):
    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs


def train(
    job: str,
    stop_after: str,
    directory: str,
    strategy: str = "fsdp",
    dropout: str = "0",
    window: str = "1",
    kind: str = "FsdpTrial",
) -> None:
    """Trains and writes this rank's samples and final state into a file of the directory."""
    with init(job_id=job, aggregation_frequency=int(window)) as context:
        fixed_seed(context)
        trial = globals()[kind](context, strategy, float(dropout))
        trial.callbacks = {"stop": StopAfter(int(stop_after))}
        Trainer(trial, context).fit(max_length=Batch(NUM_BATCHES), validation_period=Batch(2))
        states = {
            "model": [_whole(model.state_dict()) for model in context.models],
            "optimizer": [_whole(optimizer.state_dict()["state"]) for optimizer in context.optimizers],
        }
        torch.save({"trained": trial.trained, **states}, Path(directory) / f"{job}.{context.distributed.rank}")


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return value.full_tensor() if isinstance(value, DTensor) else value


def results(directory: Path, job: str, num_ranks: int) -> list[dict[str, Any]]:
    return [torch.load(directory / f"{job}.{rank}", weights_only=True) for rank in range(num_ranks)]


def samples(ranks: list[dict[str, Any]]) -> list[list[float]]:
    """Returns the samples of each global batch."""
    trained = [each["trained"] for each in ranks]
    return [sorted(x for batch in batches for x in batch[2]) for batches in zip(*trained, strict=True)]


@pytest.mark.parametrize("kind", ["FsdpTrial", "TwoModelsTrial"])
def test_a_resume_on_as_many_ranks_changes_nothing(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    """Samples, losses, random numbers, weights and the optimizers' states are equal, bit for bit.

    It is stopped between two steps, with gradients that are split over the ranks.
    """
    options = ("fsdp", 0.2, 2, kind)
    ranks.run(train, 2, "whole", -1, tmp_path, *options)
    ranks.run(train, 2, "stopped", 2, tmp_path, *options)
    before = results(tmp_path, "stopped", 2)

    ranks.run(train, 2, "stopped", -1, tmp_path, *options)

    after, whole = results(tmp_path, "stopped", 2), results(tmp_path, "whole", 2)
    for rank in range(2):
        assert before[rank]["trained"] + after[rank]["trained"] == whole[rank]["trained"]
        for state in ("model", "optimizer"):
            torch.testing.assert_close(after[rank][state], whole[rank][state], rtol=0, atol=0)


@pytest.mark.parametrize(("num_ranks", "strategy"), [(1, "fsdp"), (3, "fsdp"), (1, "none")])
def test_a_resume_on_another_number_of_ranks_trains_on_the_same_samples(
    ranks: Ranks, tmp_path: Path, num_ranks: int, strategy: str
) -> None:
    """A resume on another number of ranks, with or without sharding, trains on the same samples."""
    ranks.run(train, 2, "whole", -1, tmp_path, "fsdp", 0, 2)
    ranks.run(train, 2, "stopped", 2, tmp_path, "fsdp", 0, 2)
    before = results(tmp_path, "stopped", 2)

    ranks.run(train, num_ranks, "stopped", -1, tmp_path, strategy, 0, 2)

    after, whole = results(tmp_path, "stopped", num_ranks), results(tmp_path, "whole", 2)
    assert samples(before) + samples(after) == samples(whole)
    for state in ("model", "optimizer"):
        torch.testing.assert_close(after[0][state], whole[0][state], rtol=1e-2, atol=1e-3)


def test_a_checkpoint_of_a_whole_model_is_resumed_by_a_sharded_one(ranks: Ranks, tmp_path: Path) -> None:
    """A sharded training can resume from the checkpoint of a whole model."""
    ranks.run(train, 1, "whole", -1, tmp_path, "none")
    ranks.run(train, 1, "stopped", 2, tmp_path, "none")

    ranks.run(train, 2, "stopped", -1, tmp_path, "fsdp")

    (whole,), after = results(tmp_path, "whole", 1), results(tmp_path, "stopped", 2)
    assert samples(after) == samples([whole])[3:]
    torch.testing.assert_close(after[0]["model"], whole["model"], rtol=1e-3, atol=1e-4)


def test_every_file_of_a_checkpoint_loads_with_weights_only(ranks: Ranks, tmp_path: Path) -> None:
    """Every file of a checkpoint is JSON or loads with weights_only."""
    ranks.run(train, 2, "stopped", 2, tmp_path)

    files = [path for path in Path(os.environ["CORE_SDK_HOME"]).glob("checkpoints/*/*") if path.is_file()]

    names = sorted({path.name for path in files})
    assert names == [
        ".manifest.json",
        "load_data.json",
        "metadata.json",
        "sharded_tensors.0.pt",
        "sharded_tensors.1.pt",
        "sharded_tensors.json",
        "state_dict.pth",
    ]
    for path in files:
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        else:
            torch.load(path, weights_only=True)
