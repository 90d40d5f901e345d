"""Small trainings in the shapes of public training repositories, each with the few lines that Core SDK needs.

    python shapes.py SHAPE [SIGNAL STEP]

sends itself the signal after the step.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.utils.data import DataLoader, TensorDataset

from core_sdk import Logger, client, core, loop

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


def _summed(model: torch.nn.Module) -> float:
    return float(sum(each.sum() for each in model.parameters()))


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
            logger.log({"step": step, "average": average, "val/bpb": _summed(model)}, step)
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
    """Epochs over a shuffled loader with a worker, a summary after each, and a stop within one (timm)."""
    logger = Logger(name="epochs")
    context = core.Context.current()
    assert context is not None
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = loop.resumable(DataLoader(_samples(), batch_size=8, shuffle=True, num_workers=1), seed=0)
    meter = {"sum": 0.0, "count": 0}
    state = loop.State(model=model, optimizer=optimizer, loader=loader, meter=meter)
    state.restore(context)
    for epoch in range(loader.epoch, NUM_STEPS // len(loader)):
        if loader.batches == epoch * len(loader):
            meter.update(sum=0.0, count=0)
        for batch in loader:
            meter["sum"] += _train_on(batch, model, optimizer)
            meter["count"] += 1
            _end_step(loader.batches, *signalled)
            if context.preempt.should_preempt():
                state.save(context, steps_completed=epoch)
                logger.close()
                return
        logger.log({"train": {"loss": meter["sum"] / meter["count"]}, "eval": {"top1": _summed(model)}}, epoch + 1)
        state.save(context, steps_completed=epoch + 1)
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
    """A trainer that is itself `Stateful`, besides its model and its loader (torchtitan)."""

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
    """A `Stateful` trainer whose parts `torch.distributed.checkpoint` saves (torchtitan)."""
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


def averaged_teacher(*signalled: int) -> None:
    """A student and its averaged teacher, endless data that are advanced, and a directory of `dcp` (DINOv3)."""

    def places(first: int) -> Iterator[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        for number in range(NUM_STEPS):
            if number % 6 == 0:
                order = torch.randperm(24, generator=generator).view(6, 4)
            if number >= first:
                yield order[number % 6]

    with core.init(name="teacher") as context:
        logger = Logger(context)
        student, teacher = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(student.parameters(), lr=0.01)
        _train_on(_samples()[:1], student, optimizer)
        held: dict[str, Any] = {"student": student, "teacher": teacher, "optimizer": optimizer, "iteration": 0}
        latest = context.info.latest_checkpoint
        if latest is not None:
            with context.checkpoint.restore_path(latest) as path:
                load(held, checkpoint_id=path / "dcp")
        for chosen in places(held["iteration"]):
            loss = _train_on(_samples()[chosen], student, optimizer)
            with torch.no_grad():
                for own, averaged in zip(student.parameters(), teacher.parameters(), strict=True):
                    averaged.lerp_(own, 0.1)
            held["iteration"] += 1
            logger.log({"total_loss": loss, "teacher": _summed(teacher)}, held["iteration"])
            _end_step(held["iteration"], *signalled)
            stop = context.preempt.should_preempt()
            if stop or held["iteration"] % 3 == 0:
                with context.checkpoint.store_path({"steps_completed": held["iteration"]}, shard=True) as (path, _):
                    save(held, checkpoint_id=path / "dcp")
            if stop:
                break


def derived_place(*signalled: int) -> None:
    """Data whose place follows from the step, two directories of files, and a resume in two phases (lerobot)."""
    with core.init(name="policy") as context, contextlib.ExitStack() as stack:
        latest, step, model = context.info.latest_checkpoint, 0, _model()
        resumed = None if latest is None else stack.enter_context(context.checkpoint.restore_path(latest))
        if resumed is not None:
            model.load_state_dict(load_file(resumed / "pretrained_model" / "model.safetensors"))
            step = json.loads((resumed / "training_state" / "training_step.json").read_text())["step"]
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        if resumed is not None:
            optimizer.load_state_dict(torch.load(resumed / "training_state" / "optimizer.pt"))
            torch.set_rng_state(load_file(resumed / "training_state" / "rng_state.safetensors")["torch"])
        while step < NUM_STEPS:
            epoch, place = divmod(step * 4, 24)
            order = torch.randperm(24, generator=torch.Generator().manual_seed(epoch))
            loss = _train_on(_samples()[order[place : place + 4]], model, optimizer)
            step += 1
            Logger().log({"train": {"loss": loss, "lr": 0.01}}, step)
            if step % 4 == 0:
                Logger().log({"eval": {"loss": _summed(model)}}, step)
            _end_step(step, *signalled)
            stop = context.preempt.should_preempt()
            if stop or step % 3 == 0:
                with context.checkpoint.store_path({"steps_completed": step}, shard=True) as (path, _):
                    weights, state = path / "pretrained_model", path / "training_state"
                    weights.mkdir()
                    state.mkdir()
                    save_file(model.state_dict(), weights / "model.safetensors")
                    torch.save(optimizer.state_dict(), state / "optimizer.pt")
                    save_file({"torch": torch.get_rng_state()}, state / "rng_state.safetensors")
                    (state / "training_step.json").write_text(json.dumps({"step": step}))
            if stop:
                break


def skipped_batches(*signalled: int) -> None:
    """Steps of two batches, an epoch whose first batches are skipped, and counts in a file (open-instruct)."""
    with core.init(name="sft") as context:
        logger = Logger(context)
        model = _model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=NUM_STEPS)
        parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
        steps, num_tokens, latest = 0, 0.0, context.info.latest_checkpoint
        if latest is not None:
            steps = context.checkpoint.get_metadata(latest)["steps_completed"]
            with context.checkpoint.restore_path(latest) as path:
                for name, part in parts.items():
                    part.load_state_dict(torch.load(path / f"{name}.bin"))
                num_tokens, random = torch.load(path / "counts_0.pt")
            torch.set_rng_state(random)
        for epoch in range(steps // 3, NUM_STEPS // 3):
            batches = torch.randperm(24, generator=torch.Generator().manual_seed(epoch)).view(6, 4)
            for number, chosen in enumerate(batches):
                if epoch * 3 + number // 2 < steps:
                    continue
                inputs, targets = _samples()[chosen]
                loss = torch.nn.functional.mse_loss(model(inputs), targets) / 2
                loss.backward()  # type: ignore[no-untyped-call]
                num_tokens += inputs[0, 0].item()
                if number % 2 == 0:
                    continue
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
                steps += 1
                rate = scheduler.get_last_lr()[0]
                logger.log({"train_loss": loss, "learning_rate": rate, "total_tokens": num_tokens}, steps)
                _end_step(steps, *signalled)
                stop = context.preempt.should_preempt()
                if stop or steps % 3 == 0:
                    with context.checkpoint.store_path({"steps_completed": steps}, shard=True) as (path, _):
                        for name, part in parts.items():
                            torch.save(part.state_dict(), path / f"{name}.bin")
                        torch.save((num_tokens, torch.get_rng_state()), path / "counts_0.pt")
                if stop:
                    return


class _Packs:
    """Samples of several lengths, packed into rows of one; the sample that did not fit waits for the next row."""

    def __init__(self) -> None:
        self.step = 0
        self.waiting = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            row = [self.waiting]
            while sum(row) <= 12:
                self.step += 1
                row.append(self.step * 5 % 7 + 1)
            self.waiting = row.pop()
            yield torch.tensor([sum(row), len(row), row[0], 1.0])[None]

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step, "waiting": self.waiting}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step, self.waiting = state["step"], state["waiting"]


def two_programs(*signalled: int) -> None:
    """A trainer whose loader has a state for each rank, and an evaluator that writes to the same trial (prime-rl)."""
    with core.init(name="rl") as context:
        logger = Logger(context)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        _train_on(_samples()[:1], model, optimizer)
        packs, progress = _Packs(), {"step": 0, "tokens": 0.0}
        latest = context.info.latest_checkpoint
        if latest is not None:
            with context.checkpoint.restore_path(latest) as path:
                load({"model": model, "optimizer": optimizer, "progress": progress}, checkpoint_id=path)
                packs.load_state_dict(torch.load(path / "dataloader" / "rank_0.pt"))
        rows = iter(packs)
        while progress["step"] < NUM_STEPS:
            inputs = next(rows)
            loss = _train_on((inputs, inputs.sum(1, keepdim=True)), model, optimizer)
            progress["step"] += 1
            progress["tokens"] += inputs[0, 0].item()
            step = int(progress["step"])
            logger.log({"loss/mean": loss, "step": step}, step)
            logger.log({"progress/tokens": progress["tokens"], "step": step}, step)
            _end_step(step, *signalled)
            stop = context.preempt.should_preempt()
            if stop or step % 3 == 0:
                with context.checkpoint.store_path({"steps_completed": step}, shard=True) as (path, _):
                    (path / "dataloader").mkdir()
                    torch.save(packs.state_dict(), path / "dataloader" / "rank_0.pt")
                    save({"model": model, "optimizer": optimizer, "progress": progress}, checkpoint_id=path)
            if stop:
                return
        _evaluate(context.info.trial.trial_id)


def _evaluate(trial_id: int) -> None:
    evaluated = torch.nn.Linear(4, 1)
    trial = client.get_trial(trial_id)
    with trial.writer("evals") as writer:
        for checkpoint in trial.list_checkpoints():
            step = checkpoint.metadata["steps_completed"]
            if step % 3 == 0:
                with writer.checkpoint.restore_path(checkpoint.uuid) as path:
                    load({"model": evaluated}, checkpoint_id=path)
                writer.train.report_validation_metrics(step, {"reward": _summed(evaluated)}, checkpoint=checkpoint.uuid)


_ALL = (
    files_by_step,
    epochs,
    averaged_teacher,
    growing,
    stateful_trainer,
    derived_place,
    skipped_batches,
    two_programs,
)
SHAPES = {each.__name__: each for each in _ALL}


if __name__ == "__main__":
    main()
