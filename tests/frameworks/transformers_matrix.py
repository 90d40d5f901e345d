"""Stops trainings by the Trainer of Transformers: `transformers_matrix.py sample|all`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import torch
from frameworks.stop_matrix import ask_to_stop, compare
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

from core_sdk import core
from core_sdk.integrations.transformers import CoreSDKCallback

NUM_STEPS = 12
BEST = {"load_best_model_at_end": True, "metric_for_best_model": "loss"}
SHAPES: dict[str, dict[str, Any]] = {
    # Early stopping ends it at step 8; the best model comes from step 4.
    "epochs": {"eval_strategy": "epoch", "save_strategy": "epoch", "lr_scheduler_type": "cosine", **BEST},
    # It is stopped in the middle of an accumulation.
    "accumulation": {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 2,
        "gradient_accumulation_steps": 2,
        "warmup_steps": 4,
        **BEST,
    },
    "best": {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "best", **BEST},
    "plateau": {
        "eval_strategy": "epoch",
        "save_strategy": "best",
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "lr_scheduler_kwargs": {"patience": 1},
        **BEST,
    },
    "only model": {"eval_strategy": "epoch", "save_strategy": "steps", "save_steps": 1, "save_only_model": True},
    "persistent workers": {
        "save_strategy": "no",
        "dataloader_num_workers": 2,
        "dataloader_persistent_workers": True,
    },
    "nothing saved": {"eval_strategy": "epoch", "save_strategy": "no", "metric_for_best_model": "loss"},
}
HAS_EARLY_STOPPING = {"epochs", "accumulation", "nothing saved"}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        output = self.layers(x)
        return {"loss": torch.nn.functional.mse_loss(output, labels), "logits": output}


class Asker(TrainerCallback):  # type: ignore[misc]
    def __init__(self, context: core.Context, stop_at: int | None) -> None:
        self.context, self.stop_at = context, stop_at

    def on_step_begin(self, args: TrainingArguments, state: Any, control: Any, **kwargs: object) -> None:
        if args.gradient_accumulation_steps == 1 and state.global_step + 1 == self.stop_at:
            ask_to_stop(self.context)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: object) -> None:
        if state.global_step + 1 == self.stop_at:
            ask_to_stop(self.context)


def data(num_samples: int, factor: float, generator: torch.Generator) -> list[dict[str, torch.Tensor]]:
    x = torch.randn(num_samples, 4, generator=generator)
    return [{"x": each, "labels": factor * each[:1].sin()} for each in x]


def main(shape: str, stops: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    train_data = data(4 * SHAPES[shape].get("gradient_accumulation_steps", 1), 1.0, generator)
    held_out = data(6, 0.2, generator)  # the model is best on them in the middle of the training

    def train(context: core.Context, stop_at: int | None) -> dict[str, Any]:
        torch.manual_seed(1)
        arguments = TrainingArguments(
            "files",
            num_train_epochs=6,
            per_device_train_batch_size=2,
            learning_rate=0.2,
            logging_steps=1,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            **SHAPES[shape],
        )
        callback = CoreSDKCallback(context)
        callbacks = [Asker(context, stop_at), callback]
        if shape in HAS_EARLY_STOPPING:
            callbacks.append(EarlyStoppingCallback(early_stopping_patience=2))
        trainer = Trainer(Model(), arguments, train_dataset=train_data, eval_dataset=held_out, callbacks=callbacks)
        trainer.train(resume_from_checkpoint=callback.latest_checkpoint())
        state = trainer.state
        if stop_at is None:
            assert shape not in HAS_EARLY_STOPPING or state.global_step < NUM_STEPS
        else:
            assert state.global_step == stop_at or not context.preempt.is_acknowledged
        return {
            "weights": {name: value.clone() for name, value in trainer.model.state_dict().items()},
            "steps": state.global_step,
            "best": (state.best_metric, state.best_global_step, state.best_model_checkpoint),
            "learning rate": trainer.lr_scheduler.get_last_lr(),
        }

    compare(shape, train, stops)


if __name__ == "__main__":
    # The end of an epoch with the best model, and the last evaluation that early stopping waits for.
    for shape in SHAPES:
        main(shape, [4, 8] if sys.argv[1] == "sample" else list(range(1, NUM_STEPS + 1)))
