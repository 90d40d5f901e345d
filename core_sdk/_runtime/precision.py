"""The precision of a training. Mixed precision is float16 on a GPU, and bfloat16 on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core_sdk.loop._moving import like


def autocasting(model: nn.Module, device: torch.device) -> nn.Module:
    """Makes the model run its forward pass under autocast and return float32. Returns the same model."""
    if not isinstance(model.forward, _AutocastForward):
        model.forward = _AutocastForward(model.forward, device.type)
    return model


class Precision:
    """The numbers in which a training computes: float32 or, once `use_amp()` is called, mixed precision."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_mixed = False
        self._automatic: Any = None
        """The scaler with which `scaled()` multiplies losses."""
        self._has_stepped = False
        self.scaler: Any = None
        """The scaler whose state belongs in a checkpoint; None if there is none."""

    def register(self, scaler: Any) -> None:
        """Takes a `torch.amp.GradScaler` that the training itself uses. Raises `ValueError` for a second one."""
        if self.scaler is not None:
            raise ValueError("there is a scaler already: call wrap_scaler(), or experimental.use_amp(), only once")
        self.scaler = scaler

    def use_amp(self) -> None:
        """Computes in mixed precision from now on, with scaled losses on a GPU."""
        is_scaling = self._device.type == "cuda"  # bfloat16, which a CPU computes in, has the range of float32
        scaler = torch.amp.GradScaler(self._device.type, enabled=is_scaling)
        self.register(scaler)
        self._is_mixed = True
        if is_scaling:
            self.scale_by(scaler)

    def scale_by(self, scaler: Any) -> None:
        """Scales losses and unscales gradients by this scaler, which must be registered."""
        self._automatic = scaler

    def prepared(self, model: nn.Module) -> nn.Module:
        """Returns the model, which computes in mixed precision from now on if the training does."""
        return autocasting(model, self._device) if self._is_mixed else model

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self._automatic is None else self._automatic.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients by the scale. Call it at most once between two steps."""
        if self._automatic is not None:
            self._automatic.unscale_(optimizer)

    def scaler_of_step(self, given: Any | None) -> Any | None:
        """Returns the scaler for the next step of an optimizer; `given` is the training's own scaler."""
        if self._automatic is None:
            return given
        self._has_stepped = True
        return self._automatic

    def end_batch(self) -> None:
        """Updates the scale if an optimizer has made a step in this batch."""
        if self._has_stepped:
            self._automatic.update()
            self._has_stepped = False


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
