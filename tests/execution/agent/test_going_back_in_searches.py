"""A search hears nothing of a validation in trouble, and a trial that a guard stops is over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from core_sdk._ground.records import ValidationRead
from core_sdk._home import Home
from core_sdk._home.journal import find_records
from core_sdk.client import Tracker

CONFIG = """
name: guarded
entrypoint: python3 train.py
hyperparameters: {times: {type: categorical, vals: [1, 9]}}
searcher: {name: grid, metric: error, max_length: {batches: 10}}
guards:
  - {metric: validation.error, above: 50, action: go_back, max_times: 1}
max_restarts: 0
resources: {slots_per_trial: 0}
"""

# Its error is large at step 6, in as many attempts as its hyperparameter says.
SCRIPT = """
from core_sdk import core

with core.init() as context:
    step, attempt = context.info.trial.steps_completed, context.info.trial.attempt
    while step < 10:
        step += 1
        if step % 2 == 0:
            is_bad = step == 6 and attempt <= context.info.trial.hparams["times"]
            context.train.report_validation_metrics(step, {"error": 99.0 if is_bad else 1.0 / step})
        is_stopped = context.preempt.should_preempt()
        if step % 2 == 0 or is_stopped:
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "step").write_text(str(step))
        if is_stopped:
            break
"""


def test_a_search_hears_what_counts(tmp_path: Path, home: Home) -> None:
    """Going back is no restart; after the last time the trial is over, with the reason."""
    (tmp_path / "config.yaml").write_text(CONFIG.replace("python3", sys.executable))
    (tmp_path / "train.py").write_text(SCRIPT)
    create = [sys.executable, "-m", "core_sdk._interfaces.cli", "experiment", "create", "--local", "config.yaml", "."]

    finished = subprocess.run(
        create, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False
    )

    output = finished.stdout + finished.stderr
    trials = {each.hparams["times"]: each for each in Tracker().list_trials()}
    assert finished.returncode == 0, output
    assert {times: (each.state.name, each.num_attempts) for times, each in trials.items()} == {
        1: ("COMPLETED", 2),
        9: ("COMPLETED", 2),
    }
    events = find_records(home.root / "experiments" / "1" / "events.journal", ['"validation_read"'])
    heard = [each.metric for each in events if isinstance(each, ValidationRead)]
    assert 99.0 not in heard
    assert trials[9].reason == "guard: error 99 is above 50"
    assert [each.steps_completed for each in trials[1].iter_metrics("validation")] == [2, 4, 6, 8, 10]
