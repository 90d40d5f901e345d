"""Trial and Trainer: a training whose loop, data order, reports, checkpoints and resumes are taken care of.

with core_sdk.pytorch.init(hparams=hparams) as train_context:
    trial = MyTrial(train_context)
    core_sdk.pytorch.Trainer(trial, train_context).fit(max_length=core_sdk.pytorch.Epoch(10))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_sdk._ground.importing import lazy_names, needing_torch
from core_sdk.loop._schedule import Batch, Epoch, Record, Seconds, TrainUnit

with needing_torch("core_sdk.pytorch"):
    from core_sdk._runtime.lr_scheduler import LRScheduler
    from core_sdk.loop._moving import to_device
    from core_sdk.pytorch import samplers
    from core_sdk.pytorch._callback import PyTorchCallback
    from core_sdk.pytorch._context import PyTorchExperimentalContext, PyTorchTrialContext
    from core_sdk.pytorch._data import DataLoader, TorchData, adapt_batch_sampler, data_length
    from core_sdk.pytorch._reducers import MetricReducer, Reducer
    from core_sdk.pytorch._trial import PyTorchTrial

if TYPE_CHECKING:
    from core_sdk.pytorch._init import init
    from core_sdk.pytorch._loading import CheckpointLoadContext, load_trial_from_checkpoint_path
    from core_sdk.pytorch._trainer import FitResult, Trainer

__all__ = [
    "Batch",
    "CheckpointLoadContext",
    "DataLoader",
    "Epoch",
    "FitResult",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Record",
    "Reducer",
    "Seconds",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "adapt_batch_sampler",
    "data_length",
    "init",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
]

# Loaded when first used: training needs all of the Core API, but a worker of a data loader, for example, does not.
_NAMES = {
    "CheckpointLoadContext": "_loading",
    "FitResult": "_trainer",
    "Trainer": "_trainer",
    "init": "_init",
    "load_trial_from_checkpoint_path": "_loading",
}
__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
