"""The trainer for PyTorch, and the helpers with which its function trains on several workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_sdk._ground.importing import lazy_names
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
__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
