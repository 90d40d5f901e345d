"""The examples as experiments: each configuration is submitted as a reader would, and its trials run to their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from masters import running_master

from core_sdk._home import Home

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CORE_SDK = Path(sys.executable).with_name("core-sdk")
NUM_SLOTS = 2


def core_sdk(*arguments: object) -> str:
    """Returns the command's output; it must succeed. `python3` is the one that runs the tests."""
    command = [str(CORE_SDK), *map(str, arguments)]
    variables = os.environ | {"PATH": f"{CORE_SDK.parent}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def trials(experiment_id: int) -> list[dict[str, Any]]:
    return list(json.loads(core_sdk("experiment", "trials", experiment_id, "--json")))


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ("0_plain.yaml", ["entrypoint=python3 0_plain.py --epochs 1"]),
        ("1_metrics.yaml", ["entrypoint=python3 1_metrics.py --epochs 1"]),
        ("2_checkpoints.yaml", ["entrypoint=python3 2_checkpoints.py --epochs 1"]),
        ("3_search_ready.yaml", ["searcher.max_trials=4"]),
        ("4_search.yaml", ["searcher.max_trials=3", "searcher.max_time=3", "searcher.num_rungs=2"]),
        ("5_distributed.yaml", []),
        ("8_trial_distributed.yaml", []),
        ("8_trial_search.yaml", ["searcher.max_trials=4"]),
    ],
)
def test_each_configuration_runs_to_its_end(home: Home, config: str, options: list[str]) -> None:
    """Each example configuration runs to its end, here with fewer trials or epochs."""
    overrides = [word for option in options for word in ("--config", option)]

    with running_master(Home.create(home.root), NUM_SLOTS):
        core_sdk("experiment", "create", EXAMPLES / config, EXAMPLES, "--follow", *overrides)

    assert {trial["state"] for trial in trials(1)} == {"COMPLETED"}


def test_a_search_stops_most_of_its_trials_and_finds_a_good_one(home: Home) -> None:
    """The search example stops at least half of its trials, each with a checkpoint, and finds a good one."""
    with running_master(Home.create(home.root), NUM_SLOTS):
        core_sdk("experiment", "create", EXAMPLES / "4_search.yaml", EXAMPLES, "--follow")

    found = trials(1)
    stopped = [trial for trial in found if trial["reason"] == "stopped by the searcher"]
    assert len(found) == 16
    assert len(stopped) >= 8
    assert all(trial["latest_checkpoint"] for trial in found)
    assert json.loads(core_sdk("experiment", "best", 1, "--json"))["best"]["value"] >= 0.97
