"""What PyTorch needs to train on several workers."""

from __future__ import annotations

from core_sdk.train.torch._trainer import TorchConfig, TorchTrainer

__all__ = ["TorchConfig", "TorchTrainer"]
