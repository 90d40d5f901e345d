"""Trials whose models DeepSpeed trains: engines, micro-batches and model parallelism, under the same Trainer.

with core_sdk.pytorch.deepspeed.init(hparams=hparams) as train_context:
    trial = MyTrial(train_context)
    core_sdk.pytorch.deepspeed.Trainer(trial, train_context).fit(max_length=core_sdk.pytorch.Epoch(10))
"""

from core_sdk.pytorch.deepspeed._context import (
    DeepSpeedTrialContext,
    ModelParallelUnit,
    make_data_parallel_mpu,
    make_deepspeed_mpu,
    overwrite_deepspeed_config,
)
from core_sdk.pytorch.deepspeed._init import init
from core_sdk.pytorch.deepspeed._trainer import Trainer
from core_sdk.pytorch.deepspeed._trial import DeepSpeedTrial

__all__ = [
    "DeepSpeedTrial",
    "DeepSpeedTrialContext",
    "ModelParallelUnit",
    "Trainer",
    "init",
    "make_data_parallel_mpu",
    "make_deepspeed_mpu",
    "overwrite_deepspeed_config",
]
