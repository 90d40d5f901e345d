"""Models that compute in mixed precision: float16 on a GPU, bfloat16 on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core_sdk.loop.moving import like


def autocasting(model: nn.Module, device: torch.device) -> nn.Module:
    """Has the model run its forward pass under autocast and return float32. Returns the same model."""
    if not isinstance(model.forward, _AutocastForward):
        model.forward = _AutocastForward(model.forward, device.type)
    return model


class _AutocastForward:
    """The forward pass of a model, under autocast.

    It is an object rather than a function, so that a copy of the model has a forward pass of its own, and so that the
    model can be pickled.
    """

    def __init__(self, forward: Callable[..., Any], device_type: str) -> None:
        functools.update_wrapper(self, forward)
        self._forward = forward
        self._device_type = device_type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(self._device_type):
            outputs = self._forward(*args, **kwargs)
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
