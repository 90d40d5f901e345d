"""A training goes back by the rule of a guard, and ends as if the batches of the trouble had never been."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core_sdk._ground.records import AttemptStarted
from core_sdk._home import Home
from core_sdk._home.journal import find_records
from core_sdk.client import Tracker

# Of 200 samples, the batch with the poisoned one makes the loss, and then the weights, NaN or huge.
TRAINING = """
import json, os, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
from core_sdk import core, loop

poison, left_out = json.loads(sys.argv[1]), json.loads(sys.argv[2])
points = torch.arange(200.0).reshape(200, 1) / 200


class Samples(TensorDataset):
    def __getitem__(self, index):
        (x,) = super().__getitem__(index)
        return x, torch.tensor(float(poison[1]) if index == poison[0] else 1.0)


guards = [core.Guard(metric="loss", **rule) for rule in json.loads(os.environ.get("RULES", "[]"))]
with core.init(distributed="torch", guards=guards, seed=3) as context:
    loop.seed_all(3)
    model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = loop.resumable(
        DataLoader(Samples(points), batch_size=4, shuffle=True), distributed=context.distributed, shares_batch=True
    )
    state = loop.State(model=model, optimizer=optimizer, loader=loader)
    state.restore(context)
    stream = (batch for _, batch in loader.stream())
    steps = loader.batches
    while steps < 40:
        if str(steps) in left_out:
            for _ in range(left_out.pop(str(steps))):
                next(stream)
                loader._progress.batches -= 1
        x, weight = next(stream)
        loss = ((model(x) - x**2).square() * weight[:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        everybody = context.distributed.allgather([p.grad for p in model.parameters()])
        for p, *grads in zip(model.parameters(), *everybody):
            p.grad = sum(grads) / len(grads)
        optimizer.step()
        steps += 1
        losses = context.distributed.allgather(loss.item())
        context.train.report_training_metrics(steps, {"loss": sum(losses) / len(losses)})
        if context.preempt.should_preempt():
            state.save(context)
            break
        if steps % 5 == 0:
            state.save(context)
    else:
        if context.distributed.is_chief:
            print("weights", *(value.hex() for p in model.parameters() for value in p.flatten().tolist()), flush=True)
"""

BACK = {"not_finite": True, "action": "go_back", "skip_batches": 0}


def train(
    directory: Path, poison: list[object], rules: list[dict[str, object]], *, left_out: dict[str, int] | None = None,
    num_ranks: int = 1, timeout_s: float = 120,
) -> tuple[int, str]:  # fmt: skip
    """Trains under an agent; returns the exit status and the output."""
    script = directory / "train.py"
    script.write_text(TRAINING)
    launch = ["-m", "launch.torch_distributed", "--nproc-per-node", str(num_ranks), "--"] if num_ranks > 1 else []
    start = [sys.executable, "-m", "core_sdk._interfaces.cli"]
    train = [
        sys.executable,
        *launch,
        *([sys.executable] if num_ranks > 1 else []),
        str(script),
        json.dumps(poison),
        json.dumps(left_out or {}),
    ]
    finished = subprocess.run(
        [*start, "run", "--", *train],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=os.environ | {"RULES": json.dumps(rules)},
        cwd=directory,
    )
    return finished.returncode, finished.stdout + finished.stderr


def weights(output: str) -> str:
    lines = [line for line in output.splitlines() if "weights" in line]
    assert lines, output
    return lines[-1].partition("weights")[2]  # a trouble of the last step comes too late to keep it from its end


def resumed_steps(home: Home) -> list[int]:
    folder = home.trial(1)
    starts = [next(find_records(folder.journal_path(number), ['"attempt"'])) for number in folder.attempts()]
    return [start.resumed_steps for start in starts if isinstance(start, AttemptStarted)]


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_nan_is_left_out_and_the_rest_is_exact(tmp_path: Path, home: Home, num_ranks: int) -> None:
    """Weights after a NaN are bit for bit those of a training that has left out the batches up to it."""
    status, output = train(tmp_path, [17, "nan"], [BACK], num_ranks=num_ranks)

    trial = Tracker().get_trial(1)
    reported = [(each.steps_completed, each.metrics["loss"]) for each in trial.iter_metrics(superseded=True)]
    trouble_at = next((steps for steps, loss in reported if math.isnan(loss)), 0)
    assert trouble_at, output
    assert (status, trial.num_attempts) == (0, 2), output
    back_at = resumed_steps(home)[1]
    assert back_at == (trouble_at - 1) // 5 * 5
    assert f"went back from step {trouble_at} to {back_at}: loss is nan" in output
    _, plain = train(tmp_path, [-1, "nan"], [], left_out={str(back_at): trouble_at - back_at}, num_ranks=num_ranks)
    assert weights(plain) == weights(output)


def test_a_checkpoint_that_was_spoiled_unseen_is_gone_back_to_once(tmp_path: Path, home: Home) -> None:
    """The spike comes at step 4, before there is a median, and the checkpoint of step 5 has its weights already."""
    rule = {"above_median": 30.0, "action": "go_back", "skip_batches": 0}

    status, output = train(tmp_path, [26, "1e6"], [rule])

    assert (status, resumed_steps(home)) == (0, [0, 5, 0]), output
    _, plain = train(tmp_path, [-1, "1e6"], [], left_out={"0": 7})
    assert weights(plain) == weights(output)
