"""Trainers that execute a function on several workers, of this machine or of a Ray cluster.

result = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()

A `fit()` is a trial of the home: its reports, checkpoints and output are kept with it, and it can be paused and
resumed. The names come from `ray.train`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from core_sdk._runtime.retention import CheckpointConfig
from core_sdk.errors import TrainingFailedError
from core_sdk.train._checkpoint import Checkpoint, ReportedCheckpoint, ReportedCheckpointStatus
from core_sdk.train._configs import (
    DataConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    TrainRunContext,
    UserCallback,
)
from core_sdk.train._functions import (
    CheckpointUploadMode,
    PreemptionInfo,
    TrainContext,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    get_preemption_info,
    report,
    should_preempt,
)
from core_sdk.train._result import Result

if TYPE_CHECKING:
    from core_sdk.train import collective, session, torch
    from core_sdk.train.torch import TorchConfig, TorchTrainer

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointUploadMode",
    "DataConfig",
    "FailureConfig",
    "LoggingConfig",
    "PreemptionInfo",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "TorchConfig",
    "TorchTrainer",
    "TrainContext",
    "TrainRunContext",
    "TrainingFailedError",
    "UserCallback",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "report",
    "should_preempt",
]

# Not in `__all__`: `from core_sdk.train import *` must not replace the user's `torch`.
_MODULES = frozenset({"collective", "session", "torch"})
_NAMES = {"TorchConfig": "torch", "TorchTrainer": "torch"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"core_sdk.train.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"core_sdk.train.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'core_sdk.train' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
