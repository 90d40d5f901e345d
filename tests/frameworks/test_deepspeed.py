"""Real DeepSpeed, on two ranks of this machine: under its own launcher, and what ours says of a rank that fails."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

from frameworks.environments import FrameworkEnvironment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "6_frameworks.py"

FAILS = """\
import deepspeed, torch
from core_sdk import core

deepspeed.init_distributed()
with core.init(distributed=core.DistributedContext.from_deepspeed()) as core_context:
    model = torch.nn.Linear(8, 1)
    config = {"train_batch_size": 2, "zero_optimization": {"stage": 1}}
    optimizer = torch.optim.Adam(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(10):
        if step == 3 and core_context.distributed.rank == 1:
            raise ValueError("the fourth batch is empty")
        engine.backward(engine(torch.ones(1, 8)).sum())
        engine.step()
"""


def run(environment: FrameworkEnvironment, *command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | environment.variables(),
        timeout=150,
        check=False,
    )


def test_the_rank_that_failed_is_named(deepspeed: FrameworkEnvironment, tmp_path: Path) -> None:
    """The launcher names the rank that failed first, and ends the other one, which waits for its gradients."""
    (tmp_path / "train.py").write_text(textwrap.dedent(FAILS))

    done = run(deepspeed, deepspeed.python, "-m", "launch.deepspeed", "--num_gpus=2", "--", "train.py", cwd=tmp_path)

    assert done.returncode == 1, done.stderr
    assert "rank 1 of 2 failed first" in done.stderr
    assert "ValueError: the fourth batch is empty" in done.stderr


def test_deepspeeds_own_launcher_starts_the_same_script(
    deepspeed: FrameworkEnvironment, tmp_path: Path, free_port: int
) -> None:
    """The ranks meet through the store that rank 0's `init_distributed()` opens."""
    options = ["--num_gpus=2", f"--master_port={free_port}", "--no_local_rank"]

    done = run(deepspeed, deepspeed.program("deepspeed"), *options, EXAMPLE, "--epochs=1", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "epoch 1, step 45:" in done.stdout
    assert done.stdout.count("on the test images") == 1
