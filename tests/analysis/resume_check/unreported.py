"""A training that forgets a tensor, which no metric shows."""

from __future__ import annotations

import torch

from core_sdk import core

with core.init() as context:
    first, hidden = 1, torch.zeros(2)
    if (latest := context.info.latest_checkpoint) is not None:
        with context.checkpoint.restore_path(latest) as path:
            first = torch.load(path / "state.pt")["step"] + 1
    for step in range(first, 9):
        hidden += step
        context.train.report_training_metrics(step, {"loss": 1 / step})
        is_stopping = context.preempt.should_preempt()
        if is_stopping or step == 8:
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                torch.save({"step": step, "hidden": hidden, "other": torch.ones(1)}, path / "state.pt")
        if is_stopping:
            break
