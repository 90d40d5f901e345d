"""Histograms of a module's gradients and parameters, from its hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core_sdk.compat.wandb._values import Histogram


class ModuleWatch:
    """The hooks of one module, until `end()`."""

    def __init__(
        self, model: Any, what: str, log_freq: int, prefix: str, record: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self.model = model
        self._log_freq = max(1, log_freq)
        self._record = record
        self._num_gradients: dict[str, int] = {}
        self._num_passes = 0
        self._prefix = prefix
        self._handles: list[Any] = []
        if what in ("gradients", "all"):
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    self._handles.append(parameter.register_hook(self._gradient_hook(f"gradients/{prefix}{name}")))
        if what in ("parameters", "all"):
            self._handles.append(model.register_forward_hook(self._heed_pass))

    def end(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _gradient_hook(self, name: str) -> Callable[[Any], None]:
        def heed(gradient: Any) -> None:
            count = self._num_gradients[name] = self._num_gradients.get(name, 0) + 1
            if count % self._log_freq == 0:
                self._record({name: _histogram(gradient)})

        return heed

    def _heed_pass(self, *arguments: Any) -> None:
        self._num_passes += 1
        if self._num_passes % self._log_freq == 0:
            named = self.model.named_parameters()
            self._record({f"parameters/{self._prefix}{name}": _histogram(value) for name, value in named})


def _histogram(tensor: Any) -> Histogram:
    return Histogram(tensor.detach().to_dense() if tensor.is_sparse else tensor.detach())
