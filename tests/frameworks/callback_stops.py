"""Stops a framework's training in all ways: `callback_stops.py SHAPE [saved]`, in an empty directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import torch
from stopping import ASKED_AT, MOST_STEPS, Stop, check_all
from torch.utils.data import DataLoader, TensorDataset

from core_sdk import core, train

DATA = [{"x": torch.ones(2), "labels": torch.zeros(1)} for _ in range(MOST_STEPS)]


def lightning(stop: Stop, has_saved: bool) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint

    from core_sdk.integrations.lightning import CoreSDKCallback

    with core.init() as context:
        callbacks: list[Any] = [CoreSDKCallback(context)]
        if has_saved:
            callbacks.append(ModelCheckpoint("files", every_n_train_steps=ASKED_AT - 1))
        _lightning_trainer(callbacks, max_steps=MOST_STEPS).fit(_lightning_model(stop, context))


def lightning_in_a_function(stop: Stop, has_saved: bool) -> None:
    """Each epoch has one step, and is a report with a checkpoint."""
    from core_sdk.train.lightning import RayTrainReportCallback
    from core_sdk.train.torch import TorchTrainer

    def function() -> None:
        model = _lightning_model(stop, train.get_context().core_context)
        options = {"max_epochs": MOST_STEPS, "limit_train_batches": 1}
        _lightning_trainer([RayTrainReportCallback()], **options).fit(model)

    scaling = train.ScalingConfig(num_workers=0)
    assert TorchTrainer(function, scaling_config=scaling).fit().is_stopped


def _lightning_trainer(callbacks: list[Any], **options: Any) -> Any:
    from lightning.pytorch import Trainer

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    has_saves = any(type(each).__name__ == "ModelCheckpoint" for each in callbacks)
    return Trainer(
        accelerator="cpu",
        callbacks=callbacks,
        limit_val_batches=0,
        log_every_n_steps=1,
        enable_checkpointing=has_saves,
        **quiet,
        **options,
    )


def _lightning_model(stop: Stop, context: core.Context) -> Any:
    from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset

    class Model(BoringModel):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            stop.step(context)
            output = super().training_step(batch, batch_idx)
            self.log("loss", output["loss"])
            return output

        def train_dataloader(self) -> Any:
            return DataLoader(RandomDataset(32, 64), num_workers=2)

    return Model()


def transformers(stop: Stop, has_saved: bool) -> None:
    from transformers import Trainer, TrainingArguments

    from core_sdk.integrations.transformers import CoreSDKCallback

    with core.init() as context:

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)

            def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
                stop.step(context)
                return {"loss": (self.layer(x) - labels).square().mean()}

        saves = {"save_strategy": "steps", "save_steps": ASKED_AT - 1} if has_saved else {"save_strategy": "no"}
        arguments = TrainingArguments(
            "files",
            per_device_train_batch_size=1,
            logging_steps=1,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            dataloader_num_workers=2,
            **saves,
        )
        Trainer(Model(), arguments, train_dataset=DATA, callbacks=[CoreSDKCallback(context)]).train()


def accelerate(stop: Stop, has_saved: bool) -> None:
    from accelerate import Accelerator

    from core_sdk.integrations.accelerate import CoreSDKTracker, save_state

    with core.init() as context:
        accelerator = Accelerator(cpu=True, log_with=CoreSDKTracker(context))
        accelerator.init_trackers("stops")
        loader = accelerator.prepare(DataLoader(TensorDataset(torch.zeros(MOST_STEPS)), num_workers=2))
        for step, _ in enumerate(loader, start=1):
            stop.step(context)
            accelerator.log({"loss": 1.0}, step=step)
            should_stop = context.preempt.should_preempt()
            if should_stop or (has_saved and step == ASKED_AT - 1):
                save_state(accelerator, context, {"steps_completed": step})
            if should_stop:
                break


if __name__ == "__main__":
    check_all(globals()[sys.argv[1]], has_saved=sys.argv[2:] == ["saved"], always_saves=True)
