"""What the tests' trainers are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

NUM_SAMPLES = 50
NUM_VALIDATED = 11


def model_creator(config: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def data_creator(config: dict[str, Any]) -> tuple[Dataset[Any], Dataset[Any]]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(NUM_SAMPLES + NUM_VALIDATED, 4, generator=generator)
    targets = features.sum(dim=1, keepdim=True)
    return (
        TensorDataset(features[:NUM_SAMPLES], targets[:NUM_SAMPLES]),
        TensorDataset(features[NUM_SAMPLES:], targets[NUM_SAMPLES:]),
    )


def optimizer_creator(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.1), momentum=0.5)


CREATORS: dict[str, Any] = {
    "model_creator": model_creator,
    "data_creator": data_creator,
    "optimizer_creator": optimizer_creator,
    "loss_creator": nn.MSELoss,
}


def weights(model: torch.nn.Module) -> list[float]:
    return torch.cat([each.flatten() for each in model.parameters()]).tolist()


def trained_alone(num_passes: int, batch_size: int) -> tuple[torch.nn.Module, list[float]]:
    """Returns the model, and the mean loss of each pass, by a plain loop."""
    model, (dataset, _) = model_creator({}), data_creator({})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    losses = []
    for _ in range(num_passes):
        total = 0.0
        for features, target in torch.utils.data.DataLoader(dataset, batch_size):
            loss = torch.nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(target)
        losses.append(total / NUM_SAMPLES)
    return model, losses
