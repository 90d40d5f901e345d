"""Spreads a model over the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import nn

from core_sdk._runtime.strategies import worker_strategy
from core_sdk.train._worker.session import Session
from core_sdk.train.torch._devices import get_device


def prepare_model(
    model: nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: Literal["ddp", "fsdp", "fsdp2"] | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Moves the model to this worker's device, and wraps it so that all workers train it together.

    "ddp" is torch's `DistributedDataParallel`, "fsdp" its `FullyShardedDataParallel`, and "fsdp2" its `fully_shard()`,
    each with these options. A single worker gets its model as it is. Raises `ValueError` for another strategy.
    """
    distributed = Session.current("prepare_model()").context.distributed
    strategy = worker_strategy(parallel_strategy, distributed.size)
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if move_to_device:
        model = model.to(device)
    else:
        device = next((parameter.device for parameter in model.parameters()), device)
    return strategy.wrap_model(model, device, parallel_strategy_kwargs or {})
