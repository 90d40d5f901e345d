"""The gradients that no step has used yet. Checkpoints include them, so that one can be saved after any batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch

from core_sdk.runtime.runtime import Ranks
from core_sdk.runtime.strategies import parameters_of

GRADIENT_FILES = "gradients."

Gradients = list[list[torch.Tensor | None]]
"""The gradients of each optimizer, in the order of its parameters."""


def pending_gradients(optimizers: Sequence[torch.optim.Optimizer]) -> Gradients | None:
    """Returns this rank's unused gradients, or None if there are none."""
    gradients = [[parameter.grad for parameter in parameters_of(optimizer)] for optimizer in optimizers]
    return gradients if any(each is not None for of_optimizer in gradients for each in of_optimizer) else None


def restore_gradients(optimizers: Sequence[torch.optim.Optimizer], gradients: Gradients) -> None:
    for optimizer, of_optimizer in zip(optimizers, gradients, strict=True):
        for parameter, gradient in zip(parameters_of(optimizer), of_optimizer, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


def read_gradients(directory: Path, ranks: Ranks) -> Gradients | None:
    """Reads this rank's gradients, or the mean of all if the number of ranks has changed. Returns None without any."""
    files = sorted(directory.glob(f"{GRADIENT_FILES}*"))
    if len(files) == ranks.size:
        return _read(directory / f"{GRADIENT_FILES}{ranks.rank}.pt")
    total: Gradients | None = None
    for file in files:
        total = _read(file) if total is None else _sum(total, _read(file))
    return None if total is None else [[_divided(each, len(files)) for each in of_one] for of_one in total]


def _read(file: Path) -> Gradients:
    return cast(Gradients, torch.load(file, map_location="cpu", weights_only=True))


def _sum(total: Gradients, more: Gradients) -> Gradients:
    pairs = zip(total, more, strict=True)
    return [[_added(*pair) for pair in zip(first, second, strict=True)] for first, second in pairs]


def _added(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _divided(gradient: torch.Tensor | None, divisor: int) -> torch.Tensor | None:
    return None if gradient is None else gradient / divisor
