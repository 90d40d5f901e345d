"""The Trainer of DeepSpeed's trials."""

from __future__ import annotations

from typing import Any, cast

import torch

from core_sdk.pytorch._fitting.checkpoint import STATE_FILE, checked_file
from core_sdk.pytorch._fitting.fitting import Fitting
from core_sdk.pytorch._trainer import Trainer as PyTorchTrainer
from core_sdk.pytorch.deepspeed._context import DeepSpeedTrialContext
from core_sdk.pytorch.deepspeed._fitting import EngineFitting
from core_sdk.pytorch.deepspeed._trial import DeepSpeedTrial


class Trainer(PyTorchTrainer):
    """Trains a `DeepSpeedTrial`, inside the `with` of the `deepspeed.init()` that has given its context.

    It is the Trainer of other trials; a batch is what lies between two steps of an engine, on all ranks.
    """

    _fitting_class: type[Fitting] = EngineFitting

    def __init__(self, trial: DeepSpeedTrial, context: DeepSpeedTrialContext) -> None:
        super().__init__(trial, cast(Any, context))

    def _read(self, storage_id: str) -> dict[str, Any]:
        with self._context._core.checkpoint.restore_path(storage_id, selector=STATE_FILE.__eq__) as directory:
            advice = "Pass the checkpoint of a DeepSpeedTrial as latest_checkpoint, or begin a new trial"
            file = checked_file(directory, STATE_FILE, storage_id, advice)
            return cast(dict[str, Any], torch.load(file, map_location="cpu", weights_only=True))

    def _check_wrapped(self) -> None:
        if not self._context.models:
            raise ValueError(
                f"{type(self._trial).__name__} has wrapped no engine: call context.wrap_model_engine(engine) in its "
                "__init__()"
            )
