"""The digits as a Trial: a model, its data, and what to do with one batch. The Trainer does the rest."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import digits
from core_sdk import pytorch


class DigitsTrial(pytorch.PyTorchTrial):
    """Learns to tell digits apart; with the hyperparameter `classes` only digits of these classes."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        torch.set_num_threads(1)
        self.context = context
        hparams = context.get_hparams()
        self.classes = sorted(hparams.get("classes", range(10)))
        model = digits.make_model(hparams.get("num_filters", 16), num_classes=len(self.classes))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=hparams.get("learning_rate", 1e-3))
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        train_digits, _ = digits.load()
        dataset = train_digits.of_classes(self.classes).dataset()
        return pytorch.DataLoader(dataset, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        _, test_digits = digits.load()
        dataset = test_digits.of_classes(self.classes).dataset()
        return pytorch.DataLoader(dataset, batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: list[Tensor], epoch_idx: int, batch_idx: int) -> dict[str, Tensor]:
        images, labels = batch
        loss = functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: list[Tensor]) -> dict[str, Any]:
        images, labels = batch
        outputs = self.model(images)
        return {
            "validation_loss": functional.cross_entropy(outputs, labels),
            "accuracy": (outputs.argmax(dim=1) == labels).float().mean(),
        }
