"""A small training with all that could make a resume inexact. As a script, it is stopped where it is told.

python exact_training.py OUTPUT NUM_WORKERS STOPS DATA

Half of the saves are in the background. Attempt N of the trial appends what it sees to OUTPUT. It gets the Nth signal
of STOPS, such as "3:TERM,5:KILL", after the batch of that number, or the first one that it trains if that is later.
DATA are "samples" or "shards".
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import core_sdk as det

NUM_EPOCHS = 3
NUM_SAMPLES = 30
BATCH_SIZE = 12
"""Over all ranks; so the last batch of an epoch is smaller."""
NUM_BATCHES = NUM_EPOCHS * 3
ACCUMULATED = 2
"""So many batches make a step; a step also takes batches of two epochs."""


class Seen(NamedTuple):
    """What a training sees of one batch or validation, compared bit by bit."""

    batches: int
    """The batches that are trained, with this one."""
    what: str
    samples: list[int]
    loss: str
    drawn: list[float]


class Augmented(Dataset[tuple[int, Tensor]]):
    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        noise = random.random() + np.random.random() + torch.rand(()).item()
        return index, torch.tensor([index / NUM_SAMPLES, noise])


SHARDS = [range(7), range(7, 7), range(7, 20), range(20, NUM_SAMPLES)]
"""One of them is empty."""


def read(shard: range) -> Iterator[tuple[int, Tensor]]:
    yield from map(Augmented().__getitem__, shard)


def loader_of(rank: int, num_ranks: int, num_workers: int = 0, data: str = "samples") -> det.loop.ResumableLoader:
    """Returns a loader with the same global batches on any number of ranks."""
    batch_size = BATCH_SIZE // num_ranks
    loader: DataLoader[Any]
    if data == "shards":
        shards = det.loop.ShardedDataset(SHARDS, read, shuffle=True, shuffle_block_size=10)
        loader = DataLoader(shards, batch_size, num_workers=num_workers)
    else:
        loader = DataLoader(Augmented(), batch_size, shuffle=True, num_workers=num_workers)
    distributed = cast(det.core.DistributedContext, SimpleNamespace(rank=rank, size=num_ranks))
    return det.loop.resumable(loader, seed=5, distributed=distributed)


class Training:
    def __init__(self, num_workers: int = 0, rank: int = 0, num_ranks: int = 1, data: str = "samples") -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        self._is_chief = rank == 0
        self.loader = loader_of(rank, num_ranks, num_workers, data)
        self.model: nn.Module = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2)
        self.best: dict[str, Any] = {"loss": None}
        self.state = det.loop.State(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            loader=self.loader,
            best=self.best,
        )

    @property
    def can_save(self) -> bool:
        """Returns whether the training can be saved, which is when no gradients are accumulated."""
        return self.loader.batches % ACCUMULATED == 0

    def run(self) -> Iterator[Seen]:
        """Trains to the end, and stands still after each batch and each validation."""
        is_parallel = torch.distributed.is_initialized()
        model = nn.parallel.DistributedDataParallel(self.model) if is_parallel else self.model
        for epoch in range(self.loader.epoch, NUM_EPOCHS):
            model.train()
            for samples, values in self.loader:
                loss = model(values).square().mean()
                loss.backward()
                if self.can_save:
                    self.optimizer.step()
                    self.scheduler.step()
                    self.optimizer.zero_grad()
                yield self._seen("training", samples.tolist(), loss)
            yield self._seen("validation", [epoch], self._validate())

    @torch.no_grad()
    def _validate(self) -> Tensor:
        """Validates on the chief; BatchNorm has different statistics on each rank until the next forward pass."""
        if not self._is_chief:
            return torch.zeros(())
        self.model.eval()
        loss: Tensor = self.model(torch.eye(2)).square().mean()
        self.best["loss"] = min(loss.item(), self.best["loss"] or loss.item())
        return loss

    def _seen(self, what: str, samples: list[int], loss: Tensor) -> Seen:
        drawn = [random.random(), float(np.random.random()), torch.rand(()).item()]
        return Seen(self.loader.batches, what, samples, float(loss.detach()).hex(), drawn)


class Stop:
    """A signal that this rank gets once, as soon as so many batches are trained."""

    def __init__(self, stops: Sequence[str], attempt: int, distributed: det.core.DistributedContext) -> None:
        # The last rank, so that it is not always the chief.
        is_told = attempt <= len(stops) and distributed.rank == distributed.size - 1
        batches, _, self._name = stops[attempt - 1].partition(":") if is_told else ("", "", "")
        self._batches = int(batches) if is_told else math.inf

    def after(self, seen: Seen) -> None:
        if seen.what == "training" and seen.batches >= self._batches:
            self._batches = math.inf
            os.kill(os.getpid(), signal.Signals[f"SIG{self._name}"])


def main(output: Path, num_workers: int, stops: list[str], data: str) -> None:
    distributed = None
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
        distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as core_context:
        training = Training(num_workers, core_context.distributed.rank, core_context.distributed.size, data)
        training.state.restore(core_context)
        stop = Stop(stops, core_context.info.trial.attempt, core_context.distributed)
        with output.with_suffix(f".{core_context.distributed.rank}").open("a") as file:
            for seen in training.run():
                print(json.dumps(seen), file=file, flush=True)
                stop.after(seen)
                if training.can_save:
                    should_stop = core_context.preempt.should_preempt()
                    training.state.save(core_context, wait=training.loader.batches % 4 == 0)
                    if should_stop:
                        return


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), [stop for stop in sys.argv[3].split(",") if stop], sys.argv[4])
