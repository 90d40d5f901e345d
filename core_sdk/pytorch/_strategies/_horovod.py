"""A copy of the model on each rank, whose gradients Horovod averages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from core_sdk.pytorch._strategies._strategy import OptimizerStep, Strategy, check_replica_options


class HorovodStrategy(Strategy):
    """Horovod's optimizer exchanges the gradients; the models are not changed."""

    name = "horovod"

    def __init__(self, hvd: Any) -> None:
        """Takes the module `horovod.torch`, after its `init()`."""
        self._hvd = hvd

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        check_replica_options(options)
        return model.to(device)

    def set_gradient_sync(self, model: nn.Module, is_on: bool) -> None:
        """Horovod's optimizer counts the backward passes itself."""

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        backward_passes_per_step: int,
        fp16_compression: bool,
    ) -> torch.optim.Optimizer:
        compression = self._hvd.Compression
        wrapped: torch.optim.Optimizer = self._hvd.DistributedOptimizer(
            optimizer,
            named_parameters=list(named_parameters),
            backward_passes_per_step=backward_passes_per_step,
            compression=compression.fp16 if fp16_compression else compression.none,
        )
        return wrapped

    def optimizer_step(self, optimizer: torch.optim.Optimizer, divisor: int) -> OptimizerStep:
        return HorovodStep(optimizer, divisor)

    def broadcast(self, models: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        everything = nn.ModuleList(models)
        self._hvd.broadcast_parameters(everything.state_dict(), root_rank=0)
        for optimizer in optimizers:
            self._hvd.broadcast_optimizer_state(optimizer, root_rank=0)


class HorovodStep(OptimizerStep):
    """Horovod would exchange the gradients in `step()`; they are wanted before, to be clipped."""

    optimizer: Any

    def prepare(self) -> None:
        self.optimizer.synchronize()
        super().prepare()

    def step(self, scaler: Any | None) -> None:
        with self.optimizer.skip_synchronize():
            super().step(scaler)
