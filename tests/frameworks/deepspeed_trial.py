"""A trial that real DeepSpeed trains: `deepspeed_trial.py JOB STOP_AFTER STAGE RESULTS`.

STAGE is one of ZeRO, or "pipeline" for a model of which each rank has some layers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.pipe import PipelineModule
from torch import nn
from torch.utils.data import TensorDataset

from core_sdk.pytorch import Batch, DataLoader, PyTorchCallback
from core_sdk.pytorch.deepspeed import DeepSpeedTrial, DeepSpeedTrialContext, Trainer, init

JOB, STOP_AFTER, STAGE, RESULTS = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
}


class StopAfter(PyTorchCallback):
    """Sends this process a SIGTERM after a batch."""

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]) -> None:
        if batch_idx == STOP_AFTER:
            os.kill(os.getpid(), signal.SIGTERM)


class Asks(PyTorchCallback):
    """Asks the trial's context every question at the end of each validation."""

    def __init__(self, context: DeepSpeedTrialContext) -> None:
        self.context = context
        self.answers: list[Any] = []

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        sys.path.append(str(Path(__file__).parents[1]))
        from questions import answers

        self.answers.append(answers(self.context))


class Files(PyTorchCallback):
    """Notes whether the training waits for each file that torch writes."""

    def __init__(self) -> None:
        self.are_waited_for: list[bool] = []
        save = torch.save

        def noting_save(value: Any, file: Any, **options: Any) -> None:
            if isinstance(file, str | Path):
                self.are_waited_for.append(threading.current_thread() is threading.main_thread())
            save(value, file, **options)

        torch.save = noting_save  # type: ignore[assignment]


class EngineTrial(DeepSpeedTrial):
    """Writes down which samples it trains on, with what loss, and a random number that it draws each time."""

    def __init__(self, context: DeepSpeedTrialContext) -> None:
        self.context = context
        model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.2), nn.Linear(8, 1))
        config = {**CONFIG, "zero_optimization": {"stage": int(STAGE)}}
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        self.engine = context.wrap_model_engine(engine)
        self.trained: list[Any] = []

    def build_training_data_loader(self) -> DataLoader:
        x = torch.arange(20.0).unsqueeze(1)
        size = self.context.get_train_micro_batch_size_per_gpu()
        return DataLoader(TensorDataset(x, 2 * x + 1), size, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        x = torch.arange(9.0).unsqueeze(1)
        return DataLoader(TensorDataset(x, 2 * x + 1), 4)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        self.files, self.asks = Files(), Asks(self.context)
        return {"stop": StopAfter(), "files": self.files, "asks": self.asks}

    def train_batch(self, dataloader_iter: Iterator[Any] | None, epoch_idx: int, batch_idx: int) -> Any:
        assert dataloader_iter is not None
        x, y = self.context.to_device(next(dataloader_iter))
        loss = ((self.engine(x) - y) ** 2).mean()
        self.engine.backward(loss)
        self.engine.step()
        self.trained.append([epoch_idx, batch_idx, x.flatten().tolist(), loss.item(), random.random()])
        return {"loss": loss}

    def evaluate_batch(self, dataloader_iter: Iterator[Any], batch_idx: int) -> dict[str, Any]:
        x, y = self.context.to_device(next(dataloader_iter))
        return {"error": ((self.engine(x) - y) ** 2).mean(), "mean_x": x.mean()}


class PipelineTrial(EngineTrial):
    def __init__(self, context: DeepSpeedTrialContext) -> None:
        self.context = context
        layers = [nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1)]
        model = PipelineModule(layers, num_stages=context.distributed.size, loss_fn=nn.MSELoss())
        engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=CONFIG)
        self.engine = context.wrap_model_engine(engine)
        self.trained = []

    def build_validation_data_loader(self) -> DataLoader:
        x = torch.arange(8.0).unsqueeze(1)
        return DataLoader(TensorDataset(x, 2 * x + 1), 2)

    def train_batch(self, dataloader_iter: Iterator[Any] | None, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.engine.train_batch(dataloader_iter)
        self.trained.append([epoch_idx, batch_idx, dataloader_iter is None, loss.item(), random.random()])
        return {"loss": loss}

    def evaluate_batch(self, dataloader_iter: Iterator[Any], batch_idx: int) -> dict[str, Any]:
        return {"error": self.engine.eval_batch(dataloader_iter).mean()}


def main() -> None:
    with init(job_id=JOB) as context:
        context.core_context.info.trial.trial_seed = 17
        random.seed(17)
        torch.manual_seed(17)
        trial = PipelineTrial(context) if STAGE == "pipeline" else EngineTrial(context)
        result = Trainer(trial, context).fit(max_length=Batch(6), validation_period=Batch(3))
        outcome = {
            "trained": trial.trained,
            "metrics": result.metrics,
            "reason": result.reason,
            "answers": trial.asks.answers,
            "waits_for_files": any(trial.files.are_waited_for),
        }
        (RESULTS / f"{JOB}.{context.distributed.rank}.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
