"""The built-in train and validation functions of a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from core_sdk._runtime.torch_runtime import TorchRuntime
from core_sdk.sgd._batches import Batches

Criterion = Any


def train(
    model: nn.Module,
    batches: Batches,
    criterion: Criterion,
    optimizer: torch.optim.Optimizer,
    batch_schedulers: Sequence[LRScheduler],
    runtime: TorchRuntime,
) -> Mapping[str, float]:
    """Trains one pass over the data, and returns the mean loss. `batch_schedulers` step after each batch."""
    total_loss = torch.zeros((), device=runtime.device)
    for batch in batches:
        total_loss += train_batch(model, batch, criterion, optimizer, runtime) * batches.last_size
        for scheduler in batch_schedulers:
            scheduler.step()
    return {"train_loss": total_loss.item() / max(1, batches.num_samples)}


def train_batch(
    model: nn.Module, batch: Any, criterion: Criterion, optimizer: torch.optim.Optimizer, runtime: TorchRuntime
) -> torch.Tensor:
    """Makes a step, and returns the loss."""
    features, target = parts(batch, runtime.device)
    loss: torch.Tensor = criterion(model(*features), target)
    optimizer.zero_grad()
    runtime.precision.scaled(loss).backward()  # type: ignore[no-untyped-call]
    runtime.step(optimizer)
    runtime.precision.end_batch()
    return loss.detach()


def validate(model: nn.Module, batches: Batches, criterion: Criterion, device: torch.device) -> Mapping[str, float]:
    """Returns the mean loss over the data, and the accuracy if the targets are classes."""
    total_loss, num_right = (torch.zeros((), device=device) for _ in range(2))
    is_classifying = False
    for batch in batches:
        features, target = parts(batch, device)
        output = model(*features)
        total_loss += criterion(output, target) * batches.last_size
        if is_classifying := are_classes(output, target):
            num_right += (output.argmax(dim=1) == target).sum()
    loss = total_loss.item() / max(1, batches.num_samples)
    accuracy = {"mean_accuracy": num_right.item() / max(1, batches.num_samples)} if is_classifying else {}
    return {"validation_loss": loss, "mean_loss": loss, **accuracy}


def parts(batch: Any, device: torch.device) -> tuple[list[Any], Any]:
    """Returns the features and the target of a batch, on the device."""
    if not isinstance(batch, list | tuple) or len(batch) < 2:
        raise TypeError(
            f"a batch is a {type(batch).__name__}, and not the pair (features, target) that the built-in functions "
            "take: let the dataset give such pairs, or replace them: train_function= and validation_function=, or "
            "train_batch() and validate_batch() of a TrainingOperator"
        )
    *features, target = [each.to(device, non_blocking=True) if hasattr(each, "to") else each for each in batch]
    return features, target


def are_classes(output: Any, target: Any) -> bool:
    """Returns whether the output is a score for each class, and the target a class."""
    return (
        isinstance(output, torch.Tensor)
        and isinstance(target, torch.Tensor)
        and output.dim() == 2
        and target.dim() == 1
        and not target.is_floating_point()
    )
