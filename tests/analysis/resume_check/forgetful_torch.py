"""A PyTorch training that forgets on a resume what its first argument names."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core_sdk import core, loop

forgotten = sys.argv[1] if len(sys.argv) > 1 else ""
loop.seed_all(3)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
features = torch.randn(64, 4)
data = TensorDataset(features, features.sum(1, keepdim=True))
loader = loop.resumable(DataLoader(data, batch_size=8, shuffle=True), seed=1)
objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
with core.init() as context:
    state = loop.State(**objects)
    kept = "all" if not forgotten else [name for name in [*objects, "random"] if name != forgotten]
    state.restore(context, keep=kept)
    done = context.info.trial.steps_completed
    for _ in range(loader.epoch, 3):
        for inputs, target in loader:
            done += 1
            loss = ((model(inputs) - target) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if done % 8 == 0:
                scheduler.step()
            context.train.report_training_metrics(done, {"loss": loss.item()})
            if context.preempt.should_preempt():
                state.save(context, steps_completed=done)
                raise SystemExit(75)
            if done % 5 == 0:
                state.save(context, steps_completed=done)
            if done == 20:
                raise SystemExit
