"""Small trainings in the shapes of public training repositories, each with the few lines that Core SDK needs.

    python shapes.py SHAPE [SIGNAL STEP]

sends itself the signal after the step.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.utils.data import DataLoader, TensorDataset

from core_sdk import Logger, core, loop

NUM_STEPS = 12


def main() -> None:
    shape, *signalled = sys.argv[1:]
    if signalled and signalled[0] == "within":
        # A moment that nobody has chosen: within a step, a report or a save.
        threading.Timer(float(signalled[1]), os.kill, (os.getpid(), 9)).start()
        signalled = []
    torch.set_num_threads(1)
    loop.seed_all(0)
    SHAPES[shape](*(int(each) for each in signalled))


def _end_step(step: int, number: int = 0, after: int = -1) -> None:
    if step == after:
        os.kill(os.getpid(), number)


def _model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))


def _samples() -> TensorDataset:
    inputs = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def _train_on(batch: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    inputs, targets = batch
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def files_by_step(*signalled: int) -> None:
    """One script, a generator of packed documents with a place in its data, and files named by step (nanochat)."""

    def batches(place: dict[str, Any]) -> Any:
        number, waiting = place["number"], list(place["waiting"])
        while True:
            place = {"number": number, "waiting": list(waiting)}
            while sum(waiting) < 20:
                waiting.append(number % 7 + 1)
                number += 1
            rows = [waiting.pop(waiting.index(max(waiting))) for _ in range(3)]
            inputs = torch.tensor(rows, dtype=torch.float32)[:, None].repeat(1, 4)
            yield (inputs, inputs.sum(1, keepdim=True)), place

    logger = Logger(name="files")
    context = core.Context.current()
    assert context is not None
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step, average, place = 0, 0.0, {"number": 0, "waiting": []}
    latest = context.info.latest_checkpoint
    if latest is not None:
        step = context.checkpoint.get_metadata(latest)["steps_completed"]
        with context.checkpoint.restore_path(latest) as path:
            model.load_state_dict(torch.load(path / f"model_{step}.pt"))
            optimizer.load_state_dict(torch.load(path / f"optimizer_{step}.pt"))
            average, place = json.loads((path / f"meta_{step}.json").read_text())
    loader = batches(place)
    batch, place = next(loader)
    while True:
        is_last, stop = step == NUM_STEPS, context.preempt.should_preempt()
        if step % 4 == 0:
            logger.log(
                {"step": step, "average": average, "val/bpb": float(sum(p.sum() for p in model.parameters()))}, step
            )
        if stop or is_last or step % 3 == 0:
            with context.checkpoint.store_path({"steps_completed": step}, shard=True) as (path, _):
                torch.save(model.state_dict(), path / f"model_{step}.pt")
                torch.save(optimizer.state_dict(), path / f"optimizer_{step}.pt")
                (path / f"meta_{step}.json").write_text(json.dumps([average, place]))
        if stop or is_last:
            break
        loss = _train_on(batch, model, optimizer)
        batch, place = next(loader)
        average = 0.9 * average + 0.1 * loss
        logger.log({"step": step, "train/loss": loss, "train/place": str(place), "average": average}, step)
        step += 1
        _end_step(step, *signalled)
    logger.close()


def epochs(*signalled: int) -> None:
    """Epochs over a shuffled loader with two workers, a summary after each (timm)."""
    logger = Logger(name="epochs")
    context = core.Context.current()
    assert context is not None
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = loop.resumable(DataLoader(_samples(), batch_size=8, shuffle=True, num_workers=1), seed=0)
    state = loop.State(model=model, optimizer=optimizer, loader=loader)
    state.restore(context)
    for epoch in range(loader.epoch, 5):
        losses = [_train_on(batch, model, optimizer) for batch in loader]
        logger.log({"train": {"loss": float(np.mean(losses))}, "eval": {"top1": losses[-1]}}, epoch + 1)
        _end_step(epoch + 1, *signalled)
        state.save(context, steps_completed=epoch + 1)
        if context.preempt.should_preempt():
            break
    logger.close()


def _write(held: dict[str, Any], path: Path) -> None:
    torch.save(held, path / "splats.pt")


def growing(*signalled: int) -> None:
    """Parameters whose number grows, an optimizer for each, and an iterator that is begun again (gsplat)."""
    with core.init(name="growing") as context:
        logger = Logger(context)
        splats = torch.nn.ParameterDict({"means": torch.rand(6, 3), "colors": torch.rand(6, 3)})
        optimizers = {name: torch.optim.Adam([value], lr=0.05) for name, value in splats.items()}
        loader = loop.resumable(DataLoader(TensorDataset(torch.arange(5.0)), shuffle=True), seed=0)
        first, latest = 0, context.info.latest_checkpoint
        state = loop.State(loader=loader)
        if latest is not None:
            with context.checkpoint.restore_path(latest) as path:
                held = torch.load(path / "splats.pt")
            for name, value in held["splats"].items():
                splats[name] = torch.nn.Parameter(value)
                optimizers[name].param_groups[0]["params"] = [splats[name]]
                optimizers[name].load_state_dict(held["optimizers"][name])
            first = held["step"]
            state.restore(context)
        batches = iter(loader)
        for step in range(first + 1, NUM_STEPS + 1):
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            loss = (splats["means"].sum(1) * splats["colors"].sum(1) - batch[0]).square().mean()
            loss.backward()
            for optimizer in optimizers.values():
                optimizer.step()
                optimizer.zero_grad()
            if step % 4 == 0:
                for name, optimizer in optimizers.items():
                    splats[name] = torch.nn.Parameter(
                        torch.cat([splats[name].detach(), splats[name].detach()[:2] + torch.rand(1)])
                    )
                    optimizer.state.clear()
                    optimizer.param_groups[0]["params"] = [splats[name]]
            logger.log({"train/loss": loss, "train/num": len(splats["means"])}, step)
            _end_step(step, *signalled)
            stop = context.preempt.should_preempt()
            if stop or step % 3 == 0:
                held = {
                    "step": step,
                    "splats": {name: value.detach() for name, value in splats.items()},
                    "optimizers": {name: optimizer.state_dict() for name, optimizer in optimizers.items()},
                }
                state.save(context, steps_completed=step, write=functools.partial(_write, held))
            if stop:
                break


class _Trainer:
    """A trainer that is itself `Stateful`, beside its model and its loader (torchtitan, prime-rl)."""

    def __init__(self) -> None:
        self.step = 0
        self.model = _model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "random": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        torch.set_rng_state(state["random"])


def stateful_trainer(*signalled: int) -> None:
    """A `Stateful` trainer whose parts `torch.distributed.checkpoint` saves (torchtitan, DINOv3, prime-rl)."""
    with core.init(name="trainer") as context:
        logger = Logger(context)
        trainer = _Trainer()
        # The optimizer has no state before its first step, and `dcp.load()` fills what is there.
        _train_on(_samples()[:1], trainer.model, trainer.optimizer)
        loop.seed_all(0)
        parts = {"trainer": trainer, "model": trainer.model, "optimizer": trainer.optimizer}
        if context.info.latest_checkpoint is not None:
            load(parts, storage_reader=context.checkpoint.dcp_reader(context.info.latest_checkpoint))
        samples = _samples()
        while trainer.step < NUM_STEPS:
            trainer.step += 1
            place = trainer.step * 4 % len(samples)
            loss = _train_on(samples[place : place + 4], trainer.model, trainer.optimizer)
            logger.log({"train/loss": loss}, trainer.step)
            _end_step(trainer.step, *signalled)
            stop = context.preempt.should_preempt()
            if stop or trainer.step % 3 == 0:
                writer = context.checkpoint.dcp_writer({"steps_completed": trainer.step})
                save(parts, storage_writer=writer)
            if stop:
                break


SHAPES = {each.__name__: each for each in (files_by_step, epochs, growing, stateful_trainer)}


if __name__ == "__main__":
    main()
