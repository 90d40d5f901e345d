"""The gradients that no step has used yet. Checkpoints include them, so that one can be saved after any batch."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch

from core_sdk.pytorch._context import PyTorchTrialContext
from core_sdk.pytorch._strategies import parameters_of

GRADIENT_FILES = "gradients."

Gradients = list[list[torch.Tensor | None]]
"""The gradients of each optimizer, in the order of its parameters."""


def pending_gradients(context: PyTorchTrialContext) -> Gradients | None:
    """Returns this rank's unused gradients, or None if there are none."""
    gradients = [[parameter.grad for parameter in parameters_of(optimizer)] for optimizer in context.optimizers]
    return gradients if any(each is not None for of_optimizer in gradients for each in of_optimizer) else None


def restore_gradients(context: PyTorchTrialContext, gradients: Gradients) -> None:
    for optimizer, of_optimizer in zip(context.optimizers, gradients, strict=True):
        for parameter, gradient in zip(parameters_of(optimizer), of_optimizer, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


def write_gradients(context: PyTorchTrialContext, directory: Path) -> None:
    """Writes this rank's unused gradients. For ranks that average their gradients only before a step."""
    gradients = pending_gradients(context)
    if gradients is not None:
        torch.save(gradients, directory / f"{GRADIENT_FILES}{context.distributed.rank}.pt")


def read_gradients(context: PyTorchTrialContext, directory: Path) -> Gradients | None:
    """Reads this rank's gradients, or the mean of all if the number of ranks has changed. Returns None without any."""
    files = sorted(directory.glob(f"{GRADIENT_FILES}*"))
    if len(files) == context.distributed.size:
        return _read(directory / f"{GRADIENT_FILES}{context.distributed.rank}.pt")
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
