"""A PyTorch training that goes on exactly, except after steps in whose save or resume it makes a mistake.

Each step of `FAULTS` has one of its own, so that one check disturbs the training at many of them.
"""

from __future__ import annotations

import copy
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, Sampler

from core_sdk import core

FAULTS = {
    13: "optimizer",
    14: "scheduler",
    15: "scaler",
    16: "EMA",
    17: "Python's generator",
    18: "NumPy's generator",
    19: "torch's generator",
    20: "loader's generator",
    21: "sampler's epoch",
    22: "position",
    23: "accumulation",
    24: "dropout",
    25: "bad validations",
    26: "best",
    27: "running mean",
    28: "before step()",
    29: "counter",
    30: "strict=False",
    31: "newest by name",
    32: "batch size",
    33: "packing buffer",
    34: "save that draws",
}
OPTION = sys.argv[1] if len(sys.argv) > 1 else ""
NUM_SAMPLES = 48


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self) -> None:
        self.features = torch.randn(NUM_SAMPLES, 4)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.randn(4) if OPTION == "workers" else torch.from_numpy(np.random.randn(4).astype(np.float32))
        return self.features[index] + 0.1 * noise, self.features[index].sum(0, keepdim=True)


class Shuffled(Sampler[int]):
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(time.time_ns() if OPTION == "time seed" else 5)
        self.epoch = self.start = 0

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(NUM_SAMPLES, generator=self.generator).tolist()
        return iter((order[self.epoch :] + order[: self.epoch])[self.start :])


class Packer:
    """Packs texts of many lengths into sequences of five tokens."""

    def __init__(self) -> None:
        self.num_texts = 0
        self.buffer: list[int] = []

    def sequence(self) -> list[int]:
        while len(self.buffer) < 5:
            self.num_texts += 1
            self.buffer += [self.num_texts % 7] * (3 + self.num_texts % 4)
        packed, self.buffer = self.buffer[:5], self.buffer[5:]
        return packed


class Mean:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, value: float) -> None:
        self.total, self.count = self.total + value, self.count + 1


def main(context: core.Context) -> None:
    latest = context.info.latest_checkpoint
    fault = FAULTS.get(context.info.trial.steps_completed, "") if latest is not None and not OPTION else ""
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # type: ignore[no-untyped-call]
    objects: dict[str, Any] = {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "EMA": averaged}
    samples, sampler, packer, mean = Samples(), Shuffled(), Packer(), Mean()
    loader = DataLoader(
        samples, 2 if fault == "batch size" else 4, sampler=sampler, num_workers=1 if OPTION == "workers" else 0
    )
    step = epoch = position = bad = 0
    best = float("inf")
    of_epoch = sampler.generator.get_state()
    checkpoints = Path(os.environ["CORE_SDK_HOME"]) / "checkpoints-of-script"
    checkpoints.mkdir(exist_ok=True)
    generators: tuple[Any, Any, Any] | None = None

    if latest is not None:
        paths = sorted(checkpoints.iterdir())
        if fault != "newest by name":
            paths.sort(key=lambda path: int(path.stem.partition("_")[2]))
        state = torch.load(paths[-1], weights_only=False)
        weights = state["model"]
        if fault == "strict=False":
            weights = {name.replace("3.", "head."): value for name, value in weights.items()}
        model.load_state_dict(weights, strict=fault != "strict=False")
        for name, each in objects.items():
            if name != fault:
                each.load_state_dict(state[name])
        step = state["step"] + (1 if fault == "counter" else 0)
        epoch, position = state["epoch"], 0 if fault == "position" else state["position"]
        best, bad = best if fault == "best" else state["best"], 0 if fault == "bad validations" else state["bad"]
        if fault != "running mean":
            mean.total, mean.count = state["mean"]
        packer.num_texts, packer.buffer = state["packer"] if fault != "packing buffer" else (state["packer"][0], [])
        if fault != "loader's generator":
            of_epoch = state["loader's generator"]
        for parameter, gradient in zip(model.parameters(), state["gradients"], strict=True):
            parameter.grad = None if fault == "accumulation" else gradient
        generators = state["generators"]

    def save(model_state: Any, optimizer_state: Any) -> None:
        if FAULTS.get(step) == "save that draws":
            nn.Linear(1, 1)
        state = {name: each.state_dict() for name, each in objects.items()}
        state |= {"model": model_state, "optimizer": optimizer_state, "step": step, "epoch": epoch, "best": best}
        state |= {"position": position, "bad": bad, "mean": (mean.total, mean.count)}
        state |= {"packer": (packer.num_texts, packer.buffer), "loader's generator": of_epoch}
        state["gradients"] = [each.grad for each in model.parameters()]
        state["generators"] = random.getstate(), np.random.get_state(), torch.get_rng_state()
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "marker").write_text(str(step))
            torch.save(state, checkpoints / f"step_{step}.pt")

    while True:
        sampler.epoch = 0 if fault == "sampler's epoch" else epoch
        sampler.start = position * 4
        sampler.generator.set_state(of_epoch)
        batches = iter(loader)
        if generators is not None:
            if fault != "Python's generator":
                random.setstate(generators[0])
            if fault != "NumPy's generator":
                np.random.set_state(generators[1])
            if fault != "torch's generator":
                torch.set_rng_state(generators[2])
            if fault == "dropout":
                torch.manual_seed(1)
            generators = None
        for features, target in batches:
            step, position = step + 1, position + 1
            features = features + 0.01 * random.random() + 0.01 * sum(packer.sequence())
            loss = ((model(features) - target) ** 2).mean()
            scaler.scale(loss).backward()
            before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            if step % 2 == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                scheduler.step()
                averaged.update_parameters(model)
            mean.add(loss.item())
            average = next(averaged.parameters()).sum().item()
            metrics = {"loss": loss.item(), "mean": mean.total / mean.count, "average": average}
            context.train.report_training_metrics(step, metrics | {"scale": scaler.get_scale()})
            if step % 4 == 0:
                value = max(1.0, 8.0 - step) + step / 100
                best, bad = (value, 0) if value < best else (best, bad + 1)
                context.train.report_validation_metrics(step, {"best": best})
            is_stopping = context.preempt.should_preempt()
            if is_stopping or step == 9:
                is_early = is_stopping and FAULTS.get(step) == "before step()"
                save(*(before if is_early else (model.state_dict(), optimizer.state_dict())))
            if is_stopping:
                raise SystemExit(75)
            if bad == 8:
                return
            if position == 12:
                break
        epoch, position = epoch + 1, 0
        mean = Mean()
        of_epoch = sampler.generator.get_state()


if __name__ == "__main__":
    with core.init() as context:
        main(context)
