"""Trains with a framework whose saves draw random numbers: `drawing_saves.py lightning|transformers|accelerate`.

Neither more saves nor a stop, which saves once more, nor a death after a save may change what the training draws.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import numpy
import torch
from frameworks.stop_matrix import ask_to_stop, compare, differences_of, run
from torch.utils.data import DataLoader, TensorDataset

from core_sdk import core, loop

NUM_STEPS = 6


def draw(*_: Any, **__: Any) -> list[float]:
    """Draws from each generator. Hooks of saves do so, and what they leave behind is compared."""
    return [random.random(), float(numpy.random.random()), float(torch.rand(()))]


def results(model: torch.nn.Module) -> dict[str, Any]:
    return {"drawn": draw(), "weights": {name: value.clone() for name, value in model.named_parameters()}}


class DiesError(Exception):
    """Ends a training after a step, without a word to the framework."""


def lightning(context: core.Context, stop_at: int | None, *, saves: bool = False, dies: bool = False) -> dict[str, Any]:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from core_sdk.integrations.lightning import CoreSDKCallback

    class Model(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layers(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.05)

        on_save_checkpoint = draw

    class Stops(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Trainer, *others: Any) -> None:
            if trainer.global_step == stop_at:
                ask_to_stop(context)

    callback = CoreSDKCallback(context)
    loader = DataLoader(TensorDataset(torch.arange(24.0).reshape(8, 3) / 24), batch_size=2, shuffle=True)
    trainer = Trainer(
        accelerator="cpu",
        max_steps=NUM_STEPS,
        callbacks=[Stops(), callback, *([ModelCheckpoint("files", every_n_train_steps=1)] if saves else [])],
        enable_checkpointing=saves,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
    )
    model = Model()
    trainer.fit(model, loop.resumable(loader, seed=1), ckpt_path=callback.latest_checkpoint())
    return results(model)


def transformers(
    context: core.Context, stop_at: int | None, *, saves: bool = False, dies: bool = False
) -> dict[str, Any]:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from core_sdk.integrations.transformers import CoreSDKCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (self.layers(x) - labels).square().mean()}

        def state_dict(self, *args: Any, **options: Any) -> Any:
            draw()
            return super().state_dict(*args, **options)

    class Others(TrainerCallback):  # type: ignore[misc]
        """Draws before a save, which belongs to the training, and after it."""

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            draw()

        def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.global_step == stop_at and dies:
                raise DiesError
            if state.global_step + 1 == stop_at and not dies:
                ask_to_stop(context)

        def on_save(self, *_: Any, **__: Any) -> None:
            draw()

    arguments = TrainingArguments(
        "files",
        max_steps=NUM_STEPS,
        per_device_train_batch_size=2,
        save_strategy="steps" if saves else "no",
        save_steps=1,
        logging_steps=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    data = [{"x": torch.full((3,), each / 8), "labels": torch.ones(1)} for each in range(8)]
    callback = CoreSDKCallback(context)
    trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[callback, Others()])
    trainer.train(resume_from_checkpoint=callback.latest_checkpoint())
    return results(trainer.model)


def accelerate(
    context: core.Context, stop_at: int | None, *, saves: bool = False, dies: bool = False
) -> dict[str, Any]:
    from accelerate import Accelerator

    from core_sdk.integrations.accelerate import load_state, save_state

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.05))
    accelerator.register_save_state_pre_hook(draw)
    steps_completed = (load_state(accelerator, context) or {"steps_completed": 0})["steps_completed"]
    for step in range(steps_completed + 1, NUM_STEPS + 1):
        optimizer.zero_grad()
        accelerator.backward(model(torch.ones(2, 3)).square().mean())
        optimizer.step()
        if step == stop_at and not dies:
            ask_to_stop(context)
        should_stop = context.preempt.should_preempt()
        if saves or should_stop:
            save_state(accelerator, context, {"steps_completed": step})
        if should_stop:
            break
        if step == stop_at and dies:
            raise DiesError
    return results(model)


def seeded(train: Any, **options: Any) -> Any:
    def begin(context: core.Context, stop_at: int | None) -> dict[str, Any]:
        loop.seed_all(7)
        found: dict[str, Any] = train(context, stop_at, **options)
        return found

    return begin


def after_death(train: Any, name: str) -> dict[str, Any]:
    """Returns the results of a training that died after step 2, and went on from its save there."""
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        with contextlib.suppress(DiesError), core.init(job_id=name) as context:
            seeded(train, saves=True, dies=True)(context, 2)
        with core.init(job_id=name) as context:
            assert context.info.latest_checkpoint is not None
            found: dict[str, Any] = seeded(train)(context, None)
            return found


def main(name: str) -> None:
    importlib.import_module(
        {"lightning": "lightning.pytorch"}.get(name, name)
    )  # some libraries draw when they are imported
    train = globals()[name]
    expected, _ = run(seeded(train), f"{name} without saves", [])
    found, _ = run(seeded(train, saves=True), f"{name} with saves", [])
    assert not (differences := [*differences_of(expected["drawn"], found["drawn"])]), differences
    compare(name, seeded(train), [1, 4])
    if name != "lightning":  # whose own checkpoints have no random numbers
        found = after_death(train, f"{name} dies")
        assert not (differences := [*differences_of(expected["weights"], found["weights"])]), differences


if __name__ == "__main__":
    main(sys.argv[1])
