"""A rank of a training that stores its second step with replicas, and is held before the commit in its first attempt.

python replicated.py RANK SIZE ADDRESS_OF_RANK_0

Each node has one rank.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import torch
from core.held_storage import Gate, hold

import core_sdk as det


def main(rank: int, size: int, chief_ip: str) -> None:
    distributed = det.core.DistributedContext(
        rank=rank,
        size=size,
        local_rank=0,
        local_size=1,
        cross_rank=rank,
        cross_size=size,
        chief_ip=chief_ip,
    )
    torch.manual_seed(0)
    with det.core.init(distributed=distributed, name="replicas", job_id="replicas") as core_context:
        model = torch.nn.Linear(3, 1)
        progress = {"steps": 0}
        state = det.loop.State(model=model, progress=progress)
        state.restore(core_context)
        print("from step", progress["steps"], flush=True)
        is_first = core_context.info.trial._trial_run_id == 1
        for step in range(progress["steps"] + 1, 4):
            loss = model(torch.ones(3)).square().sum()
            (gradient,) = torch.autograd.grad(loss, model.weight)
            with torch.no_grad():
                model.weight -= 0.1 * gradient
            progress["steps"] = step
            core_context.train.report_training_metrics(step, {"loss": loss.item()})
            core_context.checkpoint.wait()
            distributed.allgather("the save has ended")
            gate = Gate(Path.cwd())
            if is_first and step == 2:
                hold(core_context, gate)
            state.save(core_context, steps_completed=step, wait=False, replicas=1)
            if is_first and step == 2:
                if distributed.is_chief:
                    gate.wait_until_reached()
                print("held", flush=True)
                threading.Event().wait()
        print(f"weights {model.weight.tolist()}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
