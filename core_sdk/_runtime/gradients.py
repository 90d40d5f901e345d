"""The gradients that no step has used yet. Checkpoints include them, so that one can be saved after any batch."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from pathlib import Path

import torch

from core_sdk._runtime.runtime import Ranks
from core_sdk._runtime.strategies import parameters_of

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
        files = [directory / f"{GRADIENT_FILES}{ranks.rank}.pt"]
    if not files:
        return None
    # Mapped, since all ranks' gradients may not fit in memory at once.
    everyone = [torch.load(file, map_location="cpu", weights_only=True, mmap=True) for file in files]
    return [[_mean(each) for each in zip(*of_one, strict=True)] for of_one in zip(*everyone, strict=True)]


def _mean(gradients: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """Returns the mean. A rank without a gradient counts as one with zeros, unless there is none at all."""
    present = [gradient for gradient in gradients if gradient is not None]
    return functools.reduce(operator.add, present) / len(gradients) if present else None
