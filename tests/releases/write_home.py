"""Writes a home as the present release does: `python write_home.py HOME`, by names that 0.1.0 had, too.

Trial 1 is complete, with checkpoints at steps 50 and 100. Trial 2 failed at step 30. Trial 3, the training `job`, was
killed at step 25, with a checkpoint at step 20.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from core_sdk import core


def report(context: core.Context, first: int, last: int) -> None:
    for step in range(first, last + 1):
        context.train.report_training_metrics(step, {"loss": 1 / step, "lr": 0.1})
        if step % 10 == 0:
            context.train.report_validation_metrics(step, {"accuracy": 1 - 1 / step, "unknown": float("nan")})


def save(context: core.Context, step: int) -> None:
    with context.checkpoint.store_path({"steps_completed": step, "kind": "numbers"}) as (path, _):
        (path / "state.txt").write_text(f"state at {step}")
        (path / "parts").mkdir()
        (path / "parts" / "weights.bin").write_bytes(bytes(range(256)) * step)


def complete() -> None:
    with core.init(name="digits", hparams={"lr": 0.1, "layers": [64, 10]}, labels=["kept"]) as context:
        report(context, 1, 50)
        save(context, 50)
        report(context, 51, 100)
        save(context, 100)


def fail() -> None:
    with core.init(name="digits", hparams={"lr": 10.0}) as context:
        report(context, 1, 30)
        raise RuntimeError("the loss is not a number")


def be_killed() -> None:
    with core.init(name="interrupted", job_id="job", hparams={"lr": 0.2}) as context:
        report(context, 1, 20)
        save(context, 20)
        report(context, 21, 25)
        os._exit(9)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        {"complete": complete, "fail": fail, "be_killed": be_killed}[sys.argv[2]]()
    else:
        for part in ("complete", "fail", "be_killed"):
            home = str(Path(sys.argv[1]).absolute())
            subprocess.run([sys.executable, __file__, home, part], env=os.environ | {"CORE_SDK_HOME": home})
