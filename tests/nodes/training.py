"""The script of the ranks: a training that shares each epoch's samples among however many ranks there are.

    python training.py STEP_S

It makes at least one step, and ends with the epoch in which it finds the file `enough`. With each step it reports the
samples that all ranks together have trained with: a number, the sum of their bits. What a rank is to do wrong it finds
in files by name: `fail-at-STEP-on-RANK`, once, and `hang-at-STEP-on-RANK`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed

import core_sdk as det

NUM_SAMPLES = 24
BATCH_SIZE = 6
STEPS_PER_EPOCH = NUM_SAMPLES // BATCH_SIZE
SEED = 7


def train(core_context: det.core.Context, step_s: float) -> None:
    distributed = core_context.distributed
    steps_completed, total = _restored(core_context)
    where = f"on {os.uname().nodename}, rank {distributed.rank} of {distributed.size}"
    print(f"from step {steps_completed} {where}", flush=True)
    first_step = steps_completed
    while steps_completed == first_step or not _is_enough(distributed, steps_completed):
        batch = _batch(steps_completed)
        mine = batch[distributed.rank :: distributed.size]
        _obey_files(steps_completed + 1, distributed.rank)
        time.sleep(step_s)
        loss = torch.tensor([float(sum(mine))])
        torch.distributed.all_reduce(loss)
        steps_completed, total = steps_completed + 1, total + loss.item()
        samples = sum(1 << sample for share in distributed.allgather(mine) for sample in share)
        core_context.train.report_training_metrics(
            steps_completed, {"samples": samples, "total": total, "size": distributed.size}
        )
        print(f"step {steps_completed}", flush=True)
        if steps_completed % STEPS_PER_EPOCH == 0:
            core_context.train.report_validation_metrics(steps_completed, {"total": total})
        if steps_completed % 2 == 0:
            _save(core_context, steps_completed, total)
        if core_context.preempt.should_preempt():
            _save(core_context, steps_completed, total)
            print(f"stopped at step {steps_completed}", flush=True)
            return
    print(f"completed with {total}", flush=True)


def _is_enough(distributed: det.core.DistributedContext, steps_completed: int) -> bool:
    return steps_completed % STEPS_PER_EPOCH == 0 and bool(distributed.broadcast(Path("enough").exists()))


def _batch(step: int) -> list[int]:
    epoch, index = divmod(step, STEPS_PER_EPOCH)
    order = random.Random(SEED + epoch).sample(range(NUM_SAMPLES), NUM_SAMPLES)
    return order[index * BATCH_SIZE : (index + 1) * BATCH_SIZE]


def _obey_files(step: int, rank: int) -> None:
    if Path(f"fail-at-{step}-on-{rank}").exists():
        Path(f"fail-at-{step}-on-{rank}").unlink()
        raise ValueError(f"no good at step {step}")
    if Path(f"hang-at-{step}-on-{rank}").exists():
        time.sleep(3600)


def _save(core_context: det.core.Context, steps_completed: int, total: float) -> None:
    with core_context.checkpoint.store_path({"steps_completed": steps_completed}, shard=True) as (path, _):
        rank = core_context.distributed.rank
        (path / f"shard-{rank}.json").write_text(json.dumps([steps_completed, total]))


def _restored(core_context: det.core.Context) -> tuple[int, float]:
    checkpoint = core_context.info.latest_checkpoint
    if checkpoint is None:
        return 0, 0.0
    with core_context.checkpoint.restore_path(checkpoint) as path:
        steps_completed, total = json.loads((path / "shard-0.json").read_text())
    return steps_completed, total


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    with (
        det.core.DistributedContext.from_torch_distributed() as distributed,
        det.core.init(distributed=distributed, name="nodes") as core_context,
    ):
        train(core_context, float(sys.argv[1]))
    torch.distributed.destroy_process_group()
