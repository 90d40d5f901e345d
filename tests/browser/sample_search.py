"""A search that really runs: nine trials of a script that takes no time, in two brackets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFIG = """\
# How fast may it learn?
name: learning rate search
description: Which learning rate and width reach the lowest loss?
entrypoint: python3 train.py
hyperparameters:
  learning_rate: {type: log, base: 10, minval: -4, maxval: -1}
  width: {type: int, minval: 4, maxval: 64}
  activation: {type: categorical, vals: [relu, gelu]}
searcher:
  name: adaptive_asha
  metric: loss
  smaller_is_better: true
  time_metric: epochs
  max_time: 9
  max_trials: NUM_TRIALS
  divisor: 3
  mode: standard
reproducibility: {experiment_seed: 4}
max_restarts: 0
"""

TRAIN = """\
import math
import time

import core_sdk

with core_sdk.core.init() as ctx:
    hparams = ctx.info.trial.hparams
    goal = 0.1 * abs(math.log10(hparams["learning_rate"]) + 2.5) + 2 / hparams["width"]
    for epoch in range(1, 10):
        loss = goal + 1.5 / epoch
        print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
        ctx.train.report_training_metrics(steps_completed=epoch, metrics={"loss": loss * 0.9})
        ctx.train.report_validation_metrics(steps_completed=epoch, metrics={"loss": loss, "epochs": epoch})
        time.sleep(0.15)  # the search reads reports while trials go on
        if ctx.preempt.should_preempt():
            break
"""


def run_search(home_root: Path, directory: Path, *, num_trials: int = 9) -> None:
    """Runs the search in the home and returns when it has ended."""
    (directory / "model").mkdir(parents=True)
    (directory / "model" / "train.py").write_text(TRAIN)
    (directory / "search.yaml").write_text(CONFIG.replace("NUM_TRIALS", str(num_trials)))
    command = [
        sys.executable,
        "-m",
        "core_sdk._interfaces.cli",
        "experiment",
        "create",
        "search.yaml",
        "model",
        "--local",
    ]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = os.environ | {"CORE_SDK_HOME": str(home_root), "PATH": path}
    ended = subprocess.run(
        [*command, "--slots", "2"], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
