"""Trainers with fewer workers than they want: they shrink, wait, and grow."""

from __future__ import annotations

import json
import os
import signal
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import wait_for
from sgd.creators import CREATORS, NUM_SAMPLES, model_creator, optimizer_creator
from torch.utils.data import Dataset, default_collate

from core_sdk._execution.workers import LocalEngine
from core_sdk.loop._orders import Shuffled
from core_sdk.loop._plan import Plan
from core_sdk.sgd import PyTorchTrainer

BATCH_SIZE = 8
NUM_BATCHES = 7


class SmallEngine(LocalEngine):
    """Workers on this machine, of which there is room for a few."""

    room = 0
    num_looks = 0

    def num_available(self) -> int:
        self.num_looks += 1
        return self.room


class Numbered(Dataset[Any]):
    """Samples that tell their index."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        features = torch.tensor([index, 1.0, -1.0, 0.5]) / NUM_SAMPLES
        return index, features, features.sum(0, keepdim=True)


def train_and_note(
    config: dict[str, Any], model: Any, batches: Any, criterion: Any, optimizer: Any
) -> dict[str, float]:
    """Writes the samples of each batch into a file of this worker, and kills worker 1 where it is told to."""
    directory, rank = Path(config["directory"]), torch.distributed.get_rank()
    seen, total = [], 0.0
    for number, (indices, features, target) in enumerate(batches):
        if rank == 1 and (directory / "die").exists() and number == 3:
            (directory / "die").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(indices.tolist() if batches.last_size else [])
        loss = criterion(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * batches.last_size
    (directory / f"{rank}.json").write_text(json.dumps(seen))
    return {"loss": total / batches.num_samples, "num_workers": torch.distributed.get_world_size()}


def take_notes(directory: Path) -> list[list[int]]:
    """Returns the samples of each global batch of the last pass."""
    files = sorted(directory.glob("*.json"))
    parts = [json.loads(file.read_text()) for file in files]
    for file in files:
        file.unlink()
    return [[index for part in batch for index in part] for batch in zip(*parts, strict=True)]


def numbered_data(config: dict[str, Any]) -> Numbered:
    return Numbered()


def trainer(directory: Path, engine: SmallEngine, **arguments: Any) -> PyTorchTrainer:
    return PyTorchTrainer(
        **{**CREATORS, "data_creator": numbered_data, **arguments},
        train_function=train_and_note,
        config={"directory": str(directory)},
        num_replicas=3,
        batch_size=BATCH_SIZE,
        engine=engine,
    )


def trained_alone(global_batches: list[list[list[int]]]) -> list[float]:
    """Returns the mean loss of each pass, by a plain loop over these batches."""
    model, data = model_creator({}), Numbered()
    optimizer = optimizer_creator(model, {})
    losses = []
    for batches in global_batches:
        total = 0.0
        for indices in batches:
            _, features, target = default_collate([data[index] for index in indices])
            loss = torch.nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(indices)
        losses.append(total / NUM_SAMPLES)
    return losses


def test_global_batches_stay_while_workers_go_and_come(tmp_path: Path) -> None:
    """When the number of workers changes, each global batch keeps its samples, and losses are the same."""
    engine = SmallEngine()
    seen, passes = [], []

    with trainer(tmp_path, engine) as one:
        (seed,) = set(one.apply_all_workers(lambda runner: runner.train_loader.seed))
        for number in range(4):
            engine.room = 3 if number in (0, 3) else 2
            if number == 1:
                (tmp_path / "die").touch()
            passes.append(one.train(max_retries=1))
            seen.append(take_notes(tmp_path))

    drawn = Plan(Shuffled(NUM_SAMPLES, seed), BATCH_SIZE).batches()
    assert seen == [[draw.indices for draw in islice(drawn, NUM_BATCHES)] for _ in range(4)]
    assert [each["num_workers"] for each in passes] == [3, 2, 2, 3]
    assert [each["loss"] for each in passes] == pytest.approx(trained_alone(seen), rel=1e-5)


def test_workers_are_waited_for(tmp_path: Path) -> None:
    """While there is room for no worker, the trainer waits, and goes on when there is room."""
    engine = SmallEngine()

    def give_room() -> None:
        wait_for(lambda: engine.num_looks >= 2)
        engine.room = 2

    with trainer(tmp_path, engine) as one:
        (tmp_path / "die").touch()
        giving = threading.Thread(target=give_room)
        giving.start()
        metrics = one.train(max_retries=1)
        giving.join()

    assert metrics["num_workers"] == 2
