"""A copy of the model on each rank. Torch's DistributedDataParallel averages the gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from core_sdk._runtime.strategies._strategy import Strategy, check_replica_options


class DistributedDataParallel(nn.parallel.DistributedDataParallel):
    """Torch's class, which also has all attributes of the model in it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(self.module, name)


class DdpStrategy(Strategy):
    """Trains with torch's DistributedDataParallel. Takes its options, such as `find_unused_parameters`."""

    name = "ddp"

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        check_replica_options(options)
        model = model.to(device)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # torch refuses a model without trainable parameters
        device_ids = [device] if device.type == "cuda" else None
        return DistributedDataParallel(model, **{"device_ids": device_ids, **options})

    def inner_model(self, model: nn.Module) -> nn.Module:
        return model.module if isinstance(model, DistributedDataParallel) else model

    def set_gradient_sync(self, model: nn.Module, is_on: bool) -> None:
        # The flag that `no_sync()` sets; that would have to enclose the forward pass too.
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = is_on

    def set_forward_sync(self, model: nn.Module, is_on: bool) -> None:
        # Torch sends the chief's buffers, such as a batch norm's, before each forward pass.
        if isinstance(model, DistributedDataParallel):
            model.require_forward_param_sync = is_on


class WeightedDdpStrategy(DdpStrategy):
    """Weights the gradients of each rank by its share of the global batch, since the ranks' shares may differ."""

    def __init__(self, share: Callable[[], float]) -> None:
        """`share` returns this rank's share of the current batch, from 0 to 1."""
        self._share = share

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        wrapped = super().wrap_model(model, device, options)
        if isinstance(wrapped, DistributedDataParallel):
            # The hook has no annotations, since torch refuses annotations that are strings.
            wrapped.register_comm_hook(self._share, lambda share, bucket: _weighted_sum(share(), bucket))
        return wrapped


def _weighted_sum(weight: float, bucket: Any) -> Any:
    """Returns a future of the weighted sum of a bucket's gradients over all ranks."""
    gradients = bucket.buffer().mul_(weight)
    work = dist.all_reduce(gradients, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
