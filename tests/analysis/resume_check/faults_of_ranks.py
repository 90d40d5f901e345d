"""A training of several ranks, each with its own statistics of BatchNorm, of which the chief's alone are saved."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from core_sdk import core


def main(context: core.Context) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    if (latest := context.info.latest_checkpoint) is not None:
        with context.checkpoint.restore_path(latest) as path:
            state = torch.load(path / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = context.info.trial.steps_completed
    parallel = DistributedDataParallel(model, broadcast_buffers=False)
    while step < 8:
        step += 1
        features = torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * step + context.distributed.rank))
        optimizer.zero_grad()
        ((parallel(features) - features.sum(1, keepdim=True)) ** 2).mean().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            value = model(torch.ones(1, 4)).sum()
        model.train()
        torch.distributed.all_reduce(value)
        context.train.report_training_metrics(step, {"value": value.item()})
        if context.preempt.should_preempt():
            if context.distributed.is_chief:
                with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path / "state.pt")
            return


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    with core.init(distributed=core.DistributedContext.from_torch_distributed()) as context:
        main(context)
    torch.distributed.destroy_process_group()
