"""A copy of the model on each rank. Horovod averages the gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from core_sdk._runtime.strategies._strategy import OptimizerStep, Strategy, check_replica_options


class HorovodStrategy(Strategy):
    """Trains with Horovod, whose optimizer exchanges the gradients. The model is not wrapped."""

    name = "horovod"

    def __init__(self, hvd: Any) -> None:
        """Takes the module `horovod.torch`, after its `init()`."""
        self._hvd = hvd

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        check_replica_options(options)
        model = model.to(device)
        self._hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model

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


class HorovodStep(OptimizerStep):
    """Exchanges the gradients before the step, so that they can be clipped. Horovod would do it within `step()`."""

    optimizer: Any

    def prepare(self) -> None:
        self.optimizer.synchronize()
        super().prepare()

    def step(self, scaler: Any | None) -> None:
        with self.optimizer.skip_synchronize():
            super().step(scaler)
