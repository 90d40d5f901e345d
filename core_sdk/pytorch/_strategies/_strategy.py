"""What every way of spreading a model answers."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn


class Strategy(abc.ABC):
    """One way of training a model on all ranks."""

    name: str
    is_sharding = False
    """Whether the states of models and optimizers have tensors that are spread over the ranks."""

    @abc.abstractmethod
    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        """The model to call in its place, with the chief's weights on every rank. Collective."""

    @abc.abstractmethod
    def set_gradient_sync(self, model: nn.Module, is_on: bool) -> None:
        """Whether gradients are averaged over the ranks from the next forward pass on."""

    def set_forward_sync(self, model: nn.Module, is_on: bool) -> None:  # noqa: B027
        """Whether forward passes exchange anything; without, a rank may make one alone."""

    def inner_model(self, model: nn.Module) -> nn.Module:
        """The model that `wrap_model()` was given."""
        return model

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        backward_passes_per_step: int,
        fp16_compression: bool,
    ) -> torch.optim.Optimizer:
        """The optimizer to step in its place. Only Horovod needs the further arguments."""
        return optimizer

    def optimizer_step(self, optimizer: torch.optim.Optimizer, divisor: int) -> OptimizerStep:
        return OptimizerStep(optimizer, divisor)

    def model_state(self, model: nn.Module) -> dict[str, Any]:
        """The state to save: the same for every strategy and number of ranks."""
        return self.inner_model(model).state_dict()


def check_replica_options(options: Mapping[str, Any]) -> None:
    """Raises `TypeError` for what is no option of torch's DistributedDataParallel, also where none is made."""
    known = [*inspect.signature(nn.parallel.DistributedDataParallel).parameters][1:]
    if unknown := options.keys() - known:
        raise TypeError(
            f"wrap_model() has no option {', '.join(sorted(unknown))}; beside its own it takes those of torch's "
            f"DistributedDataParallel: {', '.join(known)}"
        )


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class OptimizerStep:
    """One optimizer, and how it makes a step once all gradients are there."""

    def __init__(self, optimizer: torch.optim.Optimizer, divisor: int) -> None:
        """Gradients are sums over `divisor` batches, to be divided by it."""
        self.optimizer = optimizer
        self._divisor = divisor

    def prepare(self) -> None:
        """Afterwards gradients are means over batches and ranks. Collective."""
        if self._divisor != 1:
            for parameter in parameters_of(self.optimizer):
                if parameter.grad is not None:
                    parameter.grad.div_(self._divisor)

    def step(self, scaler: Any | None) -> None:
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
