"""The interface of all ways of spreading a model over the ranks, and the plainest ones."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn


class Strategy(abc.ABC):
    """A way of training a model on all ranks."""

    name: str
    is_sharding = False
    """Whether the states of models and optimizers have tensors that are spread over the ranks."""

    @abc.abstractmethod
    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        """Returns the model to call in place of this one, with the chief's weights on every rank. Collective."""

    def set_gradient_sync(self, model: nn.Module, is_on: bool) -> None:  # noqa: B027
        """Sets whether gradients are averaged over the ranks, from the next forward pass on, if that can be chosen."""

    def set_forward_sync(self, model: nn.Module, is_on: bool) -> None:  # noqa: B027
        """Sets whether forward passes exchange data between ranks. If not, a rank may make one alone."""

    def inner_model(self, model: nn.Module) -> nn.Module:
        """Returns the model that `wrap_model()` was given."""
        return model

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        backward_passes_per_step: int,
        fp16_compression: bool,
    ) -> torch.optim.Optimizer:
        """Returns the optimizer to step in place of this one. Only Horovod needs the further arguments."""
        return optimizer

    def optimizer_step(self, optimizer: torch.optim.Optimizer, divisor: int) -> OptimizerStep:
        return OptimizerStep(optimizer, divisor)


class NoStrategy(Strategy):
    """Moves the model to the device of its rank. Nothing is exchanged between ranks."""

    name = "none"

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        check_replica_options(options)
        return model.to(device)


class UntouchedStrategy(NoStrategy):
    """Leaves the model where it is. For a trial that is only loaded."""

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        return model


def check_replica_options(options: Mapping[str, Any]) -> None:
    """Raises `TypeError` for an unknown option of torch's DistributedDataParallel, even if that is not used."""
    known = [*inspect.signature(nn.parallel.DistributedDataParallel).parameters][1:]
    if unknown := options.keys() - known:
        raise TypeError(
            f"wrap_model() has no option {', '.join(sorted(unknown))}; beside its own it takes those of torch's "
            f"DistributedDataParallel: {', '.join(known)}"
        )


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class OptimizerStep:
    """The step of one optimizer, after all gradients have been computed."""

    def __init__(self, optimizer: torch.optim.Optimizer, divisor: int) -> None:
        """The gradients are sums over `divisor` batches, by which they are divided."""
        self.optimizer = optimizer
        self._divisor = divisor

    def prepare(self) -> None:
        """Turns the gradients into means over batches and ranks. Collective."""
        if self._divisor != 1:
            for parameter in parameters_of(self.optimizer):
                if parameter.grad is not None:
                    parameter.grad.div_(self._divisor)

    def step(self, scaler: Any | None) -> None:
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
