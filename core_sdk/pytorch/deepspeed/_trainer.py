"""The Trainer of DeepSpeed's trials."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, cast

from core_sdk.pytorch._fitting.data import TRAINING_LOADER, Data
from core_sdk.pytorch._fitting.fitting import Fitting
from core_sdk.pytorch._trainer import Trainer as PyTorchTrainer
from core_sdk.pytorch.deepspeed._context import DeepSpeedTrialContext
from core_sdk.pytorch.deepspeed._fitting import EngineFitting, EngineValidator, NoData
from core_sdk.pytorch.deepspeed._trial import DeepSpeedTrial
from core_sdk.runtime.runtime import PARTS as WRAPPED


class Trainer(PyTorchTrainer):
    """Trains a `DeepSpeedTrial`, inside the `with` of the `deepspeed.init()` that has given its context.

    It is the Trainer of other trials; a batch is what lies between two steps of an engine, on all ranks.
    """

    _fitting_class = EngineFitting
    _validator_class = EngineValidator

    def __init__(self, trial: DeepSpeedTrial, context: DeepSpeedTrialContext) -> None:
        super().__init__(trial, cast(Any, context))
        self._load_engines = partial(trial.load, context)
        self._run.runtime.save_engines = partial(trial.save, context)

    def _training_data(self) -> Data:
        return super()._training_data() if self._run.runtime.mpu.should_build_data_loader else NoData(TRAINING_LOADER)

    def _load(self, fitting: Fitting, content: dict[str, Any], storage_id: str, kept: Collection[str]) -> None:
        if not set(WRAPPED).issubset(kept):
            raise ValueError('the engines of DeepSpeed load all that they have saved: leave out keep, or give "all"')
        with self._run.core.checkpoint.restore_path(storage_id) as directory:
            self._load_engines(directory)
        super()._load(fitting, content, storage_id, kept)
