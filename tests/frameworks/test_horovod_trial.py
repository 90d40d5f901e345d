"""Real Horovod trains a Trial class on two ranks, without a script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from execution.master.searches import await_end
from frameworks.environments import FrameworkEnvironment
from masters import running_master
from pytorch.lifecycle import CONFIG, NUM_BATCHES, Stage, reports

from core_sdk._home import Home

BY_HOROVOD = CONFIG.replace("model_def:MyTrial", "python3 -m launch.horovod --trial model_def:MyTrial")


@pytest.mark.timeout(300)
def test_a_class_trains_without_a_script(horovod: FrameworkEnvironment, home: Home, tmp_path: Path) -> None:
    """Each rank has half of every batch, and each sample is trained on once an epoch."""
    os.environ.update(horovod.variables())

    with running_master(Home.create(home.root)):
        experiment_id = Stage(tmp_path).submit(home, f"{BY_HOROVOD}resources: {{slots_per_trial: 2}}\n")
        ended = await_end(home, experiment_id)

    assert ended.state == "COMPLETED", (home.root / "runs/1/1.log").read_text()
    assert [steps for steps, _ in reports(1)] == list(range(1, NUM_BATCHES + 1))
