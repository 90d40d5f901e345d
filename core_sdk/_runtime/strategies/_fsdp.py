"""A model whose parameters, gradients and optimizer states are split over the ranks, by torch's `fully_shard()`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor

from core_sdk._runtime.ranks import group_of_one
from core_sdk._runtime.strategies._strategy import Strategy


class FsdpStrategy(Strategy):
    """Trains with FSDP2, which gathers one unit of the model after another for the forward and backward pass.

    The option `units` is the class of the submodules that become units, or a tuple of classes. By default these are the
    elements of each `nn.ModuleList`, such as the layers of a transformer. The rest of the model is one more unit. The
    other options go to `fully_shard()`, such as `mp_policy`.
    """

    name = "fsdp"
    is_sharding = True

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        chosen = dict(options)
        units = _units(model, chosen.pop("units", None))
        chosen.setdefault("mesh", _mesh_of_all_ranks(device))
        # Moves one unit at a time, since the whole model may not fit on the device.
        for module in [*units, model]:
            _broadcast(module, device)
            fully_shard(module, **chosen)
        return model


class Fsdp1Strategy(Strategy):
    """Trains with torch's older `FullyShardedDataParallel`, which takes its own options."""

    name = "fsdp1"
    is_sharding = True

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        return FullyShardedDataParallel(model.to(device), **{"device_id": device, **options})


def _units(model: nn.Module, kinds: Any) -> list[nn.Module]:
    """Returns the units, inner ones before outer ones, without the model itself."""
    if kinds is None:
        return [module for module in _elements_of_lists(model) if any(True for _ in module.parameters())]
    found = [module for module in model.modules() if isinstance(module, kinds)]
    if not found:
        raise ValueError(f"no module of the {type(model).__name__} is a unit: there is none of units={kinds!r}")
    return [module for module in reversed(found) if module is not model]


def _elements_of_lists(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        # Lists have no forward pass of their own.
        if isinstance(module, nn.ModuleList) and not isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield child
        else:
            yield from _elements_of_lists(child)


def _mesh_of_all_ranks(device: torch.device) -> DeviceMesh:
    if not dist.is_initialized():
        group_of_one()
    return init_device_mesh(device.type, (dist.get_world_size(),))


def _broadcast(module: nn.Module, device: torch.device) -> None:
    """Sends the chief's weights to all ranks, before each rank keeps its part of them."""
    for tensor in (*module.parameters(), *module.buffers()):
        if not isinstance(tensor, DTensor) and not tensor.is_meta:
            tensor.data = tensor.data.to(device)
            dist.broadcast(tensor.data, src=0)
