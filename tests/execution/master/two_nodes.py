"""A training whose ranks lie on several nodes, and what it must have reported."""

from __future__ import annotations

import torch

from core_sdk._home import Home, open_view

# The losses depend on how many ranks there are, and on nothing else.
TRAIN = """
import os, time
import torch
import torch.distributed as dist
from core_sdk import core

dist.init_process_group("gloo")
with core.DistributedContext.from_torch_distributed() as ranks, core.init(distributed=ranks) as context:
    info = context.info
    told = info.container_addrs, info.container_rank, info.container_slot_counts, info.slot_ids
    print("told", *told, "on", os.uname().nodename, flush=True)
    torch.manual_seed(0)
    model, step = torch.nn.Linear(4, 1), 0
    if info.latest_checkpoint is not None:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            state = torch.load(path / "state.pt")
        model.load_state_dict(state["model"])
        step = state["step"]
    while step < info.trial.hparams["steps"]:
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(1000 * step + ranks.rank))
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        model.zero_grad()
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        with torch.no_grad():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter -= 0.05 / ranks.size * parameter.grad
        step += 1
        context.train.report_training_metrics(step, {"own": loss.item()})
        if ranks.is_chief:
            context.train.report_validation_metrics(step, {"loss": mean.item() / ranks.size})
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                torch.save({"model": model.state_dict(), "step": step}, path / "state.pt")
        print("step", step, "on", os.uname().nodename, flush=True)
        if context.preempt.should_preempt():
            break
        time.sleep(info.trial.hparams["pause_s"])
dist.destroy_process_group()
"""


def expected_losses(num_ranks: int, num_steps: int) -> list[float]:
    """Returns the losses of each step, as one process computes them."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    expected = []
    for step in range(num_steps):
        losses = []
        for rank in range(num_ranks):
            inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(1000 * step + rank))
            losses.append((model(inputs) - inputs.sum(1, keepdim=True)).square().mean())
        mean = torch.stack(losses).mean()
        optimizer.zero_grad()
        mean.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        expected.append(mean.item())
    return expected


def losses(home: Home, trial_id: int = 1) -> list[float]:
    """Returns the losses that count, of each step from the first on. No step may be told twice, or be missing."""
    with open_view(home) as view:
        reports = list(view.reports(trial_id, group="validation"))
    assert [report.steps_completed for report in reports] == list(range(1, len(reports) + 1))
    return [report.metrics["loss"] for report in reports]


def steps_of_ranks(home: Home, trial_id: int = 1) -> dict[int | str, list[int | None]]:
    """Returns the steps of which each rank has told, as far as they count."""
    told: dict[int | str, list[int | None]] = {}
    with open_view(home) as view:
        for report in view.reports(trial_id, group="training", rank="all"):
            told.setdefault(report.rank, []).append(report.steps_completed)
    return told
