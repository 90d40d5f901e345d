"""Spreads a model over the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from core_sdk.train.torch._devices import get_device
from core_sdk.train.worker.session import Session


def prepare_model(
    model: nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: Literal["ddp", "fsdp"] | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Moves the model to this worker's device, and wraps it so that all workers train it together.

    "ddp" is torch's `DistributedDataParallel`, and "fsdp" its `FullyShardedDataParallel`, with these options. A single
    worker gets its model as it is. Raises `ValueError` for another strategy.
    """
    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ValueError(f"parallel_strategy is {parallel_strategy!r}; it must be 'ddp', 'fsdp' or None")
    distributed = Session.current("prepare_model()").context.distributed
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if move_to_device:
        model = model.to(device)
    options = dict(parallel_strategy_kwargs or {})
    if distributed.size == 1 or parallel_strategy is None:
        return model
    if parallel_strategy == "ddp":
        if device.type == "cuda":
            options = {"device_ids": [device], "output_device": device, **options}
        return DistributedDataParallel(model, **options)
    from torch.distributed.fsdp import FullyShardedDataParallel  # slow to import

    return FullyShardedDataParallel(model, **{"device_id": device, **options})
