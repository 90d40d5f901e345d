"""Trains ten steps with a framework's callback: `callback_guards.py SHAPE`. In the first attempt step 7 is NaN."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils.data import DataLoader

from core_sdk import core

NUM_STEPS, TROUBLE_AT, SAVED_EVERY = 10, 7, 2


def lightning() -> None:
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset

    from core_sdk.integrations.lightning import CoreSDKCallback

    with core.init() as context:

        class Model(BoringModel):  # type: ignore[misc]
            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loss = super().training_step(batch, batch_idx)["loss"]
                if context.info.trial.attempt == 1 and self.global_step + 1 == TROUBLE_AT:
                    loss = loss * float("nan")
                self.log("loss", loss)
                return loss

            def train_dataloader(self) -> Any:
                return DataLoader(RandomDataset(32, 64))

        saves = ModelCheckpoint("files", every_n_train_steps=SAVED_EVERY, save_top_k=-1)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        Trainer(
            accelerator="cpu",
            callbacks=[CoreSDKCallback(context), saves],
            limit_val_batches=0,
            log_every_n_steps=1,
            max_steps=NUM_STEPS,
            **quiet,
        ).fit(Model())


def transformers() -> None:
    from transformers import Trainer, TrainingArguments

    from core_sdk.integrations.transformers import CoreSDKCallback

    with core.init() as context:
        num_calls = [0]

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)

            def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
                num_calls[0] += 1
                loss = (self.layer(x) - labels).square().mean()
                is_trouble = context.info.trial.attempt == 1 and num_calls[0] == TROUBLE_AT
                return {"loss": loss * float("nan") if is_trouble else loss}

        arguments = TrainingArguments(
            "files",
            per_device_train_batch_size=1,
            logging_steps=1,
            logging_nan_inf_filter=False,
            max_steps=NUM_STEPS,
            save_strategy="steps",
            save_steps=SAVED_EVERY,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        data = [{"x": torch.ones(2), "labels": torch.zeros(1)} for _ in range(NUM_STEPS)]
        Trainer(Model(), arguments, train_dataset=data, callbacks=[CoreSDKCallback(context)]).train()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
