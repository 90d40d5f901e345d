"""The Trainer of Transformers in a training function.

def train_func():
    trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[RayTrainReportCallback()])
    prepare_trainer(trainer).train()
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from core_sdk.integrations.transformers import CallbackOfSaves, checkpoint_directory
from core_sdk.train._checkpoint import Checkpoint
from core_sdk.train._functions import get_context, report

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

__all__ = ["RayTrainReportCallback", "prepare_trainer"]


def prepare_trainer(trainer: Trainer) -> Trainer:
    """Returns the Trainer. Raises `ValueError` if it does not train with all workers, as each would train alone."""
    if trainer.args.world_size != (num_workers := get_context().get_world_size()):
        raise ValueError(
            f"the Trainer has {trainer.args.world_size} ranks, and there are {num_workers} workers: make its "
            "TrainingArguments in the training function"
        )
    return trainer


class RayTrainReportCallback(CallbackOfSaves):
    """Reports the values that the Trainer has logged, with its checkpoint, each time that it saves."""

    CHECKPOINT_NAME = "checkpoint"
    """The name of the Trainer's checkpoint directory within the reported checkpoint."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        metrics: dict[str, float] = {}
        for logged in state.log_history:
            metrics |= {name: value for name, value in logged.items() if isinstance(value, int | float)}
        source = checkpoint_directory(args, state.global_step)
        with tempfile.TemporaryDirectory(prefix="transformers-") as directory:
            # The ranks of a node have saved into one directory.
            if get_context().get_local_rank() == 0 and source.exists():
                shutil.copytree(source, Path(directory, self.CHECKPOINT_NAME))
            report(metrics, checkpoint=Checkpoint.from_directory(directory))
