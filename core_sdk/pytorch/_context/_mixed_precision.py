"""Models that compute in mixed precision: float16 on a GPU, bfloat16 on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core_sdk.loop.moving import like


def autocasting(model: nn.Module, device: torch.device) -> nn.Module:
    """Has the model run its forward pass under autocast and return float32. Returns the same model.

    The model's class is replaced by a subclass, so that copies of the model do the same.
    """
    kind = type(model)
    if not issubclass(kind, _Autocasting):
        model.__class__ = type(kind.__name__, (_Autocasting, kind), {"_autocast_device_type": device.type})
    return model


class _Autocasting(nn.Module):
    _autocast_device_type: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(self._autocast_device_type):
            outputs = super().__call__(*args, **kwargs)
        return in_full_precision(outputs)


def in_full_precision(outputs: Any) -> Any:
    """Converts tensors of half precision to float32, so that a loss needs no autocast. Keeps other objects."""
    if isinstance(outputs, torch.Tensor):
        return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
    if isinstance(outputs, dict):
        return like(outputs, {key: in_full_precision(value) for key, value in outputs.items()})
    if isinstance(outputs, (list, tuple)):
        return like(outputs, [in_full_precision(value) for value in outputs])
    return outputs
