"""The trainer for PyTorch, and the helpers with which its function trains on several workers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from core_sdk.train.torch._trainer import TorchConfig, TorchTrainer

if TYPE_CHECKING:
    from core_sdk.train.torch._devices import enable_reproducibility, get_device, get_devices
    from core_sdk.train.torch._loader import prepare_data_loader
    from core_sdk.train.torch._model import prepare_model

__all__ = [
    "TorchConfig",
    "TorchTrainer",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
]

# Loaded when first named, since they load torch: the program that calls `fit()` may do without it.
_NAMES = {
    "enable_reproducibility": "_devices",
    "get_device": "_devices",
    "get_devices": "_devices",
    "prepare_data_loader": "_loader",
    "prepare_model": "_model",
}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'core_sdk.train.torch' has no attribute {name!r}")
    return getattr(importlib.import_module(f"core_sdk.train.torch.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
