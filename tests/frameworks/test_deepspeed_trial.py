"""Real DeepSpeed trains a trial, which is stopped and goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from execution.master.searches import await_end
from frameworks.environments import FrameworkEnvironment
from masters import running_master

from core_sdk._execution.experiments.submission import submit
from core_sdk._home import Home
from core_sdk.client import Tracker

TRIAL = Path(__file__).with_name("deepspeed_trial.py")

# Each test starts three trainings, each of which imports DeepSpeed; the first one may compile parts of it.
pytestmark = pytest.mark.timeout(600)


def train(
    environment: FrameworkEnvironment, directory: Path, job: str, *, stop_after: int, num_ranks: int, stage: object
) -> list[dict[str, Any]]:
    """Trains, and returns what each rank has written down."""
    launcher = ["-m", "launch.deepspeed", f"--num_gpus={num_ranks}", "--"] if num_ranks > 1 else []
    arguments = [job, str(stop_after), str(stage), str(directory)]
    done = subprocess.run(
        [str(environment.python), *launcher, str(TRIAL), *arguments],
        cwd=directory,
        env={**os.environ, **environment.variables()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 75), done.stdout + done.stderr
    return [json.loads((directory / f"{job}.{rank}.json").read_text()) for rank in range(num_ranks)]


@pytest.mark.parametrize(("num_ranks", "stage"), [(1, 1), (2, 1), (2, 3)])
def test_a_stopped_training_goes_on_as_if_it_had_never_been_stopped(
    deepspeed: FrameworkEnvironment, tmp_path: Path, num_ranks: int, stage: int
) -> None:
    """A stopped training resumes with the same samples, losses, random numbers and validations, bit for bit."""
    whole = train(deepspeed, tmp_path, "whole", stop_after=-1, num_ranks=num_ranks, stage=stage)
    first = train(deepspeed, tmp_path, "stopped", stop_after=2, num_ranks=num_ranks, stage=stage)

    second = train(deepspeed, tmp_path, "stopped", stop_after=-1, num_ranks=num_ranks, stage=stage)

    for rank in range(num_ranks):
        assert (first[rank]["reason"], second[rank]["reason"]) == ("preempted", "completed")
        assert len(first[rank]["trained"]) == 6  # three batches of two micro-batches
        assert first[rank]["trained"] + second[rank]["trained"] == whole[rank]["trained"]
        assert second[rank]["metrics"] == whole[rank]["metrics"]
        asked = [{**each, "get_initial_batch": 3, "get_trial_id": 2} for each in whole[rank]["answers"]]
        assert second[rank]["answers"] == asked
        assert not whole[rank]["waits_for_files"]
        assert whole[rank]["metrics"]["mean_x"] == 4


def test_all_but_deepspeeds_own_files_loads_with_weights_only(deepspeed: FrameworkEnvironment, tmp_path: Path) -> None:
    """All files of a checkpoint load with weights_only, except DeepSpeed's own."""
    train(deepspeed, tmp_path, "stopped", stop_after=2, num_ranks=1, stage=1)

    (state,) = Path(os.environ["CORE_SDK_HOME"]).glob("checkpoints/*/state_dict.pth")
    names = {path.name for path in state.parent.iterdir()}
    content = torch.load(state, weights_only=True)

    assert names == {
        ".manifest.json", "code", "load_data.json", "metadata.json", "state_dict.pth",
        "latest", "model0", "zero_to_fp32.py", "zero_to_torch.py",
    }  # fmt: skip
    assert content["trainer_state"]["training"]["driver"]["counters"]["batches"] == 3
    assert json.loads((state.parent / "load_data.json").read_text())["trial_type"] == "DeepSpeedTrial"


def test_a_class_trains_without_a_script(deepspeed: FrameworkEnvironment, home: Home, tmp_path: Path) -> None:
    """A DeepSpeedTrial class trains without a script, with the lengths and periods of the configuration."""
    (tmp_path / "code").mkdir()
    arguments = f'("class", -1, 1, Path({str(tmp_path)!r}))'
    text = re.sub(r"(JOB, STOP_AFTER, STAGE, RESULTS =) .*", rf"\1 {arguments}", TRIAL.read_text())
    (tmp_path / "code" / "model_def.py").write_text(text)
    shutil.copy(TRIAL.parents[1] / "questions.py", tmp_path / "code")
    config = {
        "entrypoint": "python3 -m launch.deepspeed --num_gpus=1 -- --trial model_def:EngineTrial",
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 6}},
        "min_validation_period": {"batches": 3},
        "max_restarts": 0,
    }
    os.environ.update(deepspeed.variables())

    with running_master(Home.create(home.root)):
        submitted = submit(home, json.dumps(config), source="deepspeed.yaml", model_dir=tmp_path / "code")
        ended = await_end(home, submitted.experiment_id)

    assert ended.state == "COMPLETED", (home.root / "runs/1/1.log").read_text()
    assert [report.steps_completed for report in Tracker().get_trial(1).iter_metrics("validation")] == [3, 6]


def test_a_configuration_takes_over_hyperparameters(deepspeed: FrameworkEnvironment, tmp_path: Path) -> None:
    """Hyperparameters overwrite sections of a DeepSpeed configuration in a copy, key by key."""
    program = """
from core_sdk.pytorch.deepspeed import overwrite_deepspeed_config

base = {"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.1, "eps": 1e-8}}}
merged = overwrite_deepspeed_config(base, {"optimizer": {"params": {"lr": 0.5}}, "fp16": {"enabled": False}})

assert merged["optimizer"] == {"type": "Adam", "params": {"lr": 0.5, "eps": 1e-8}}
assert (merged["train_batch_size"], merged["fp16"]) == (8, {"enabled": False})
assert base["optimizer"]["params"]["lr"] == 0.1
"""

    done = subprocess.run(
        [str(deepspeed.python), "-c", program],
        cwd=tmp_path,
        env={**os.environ, **deepspeed.variables()},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_the_stages_of_a_pipeline_are_trained_and_go_on(deepspeed: FrameworkEnvironment, tmp_path: Path) -> None:
    """Pipeline stages resume exactly; the middle one reads no data and learns the length from the chief."""
    whole = train(deepspeed, tmp_path, "whole", stop_after=-1, num_ranks=3, stage="pipeline")
    first = train(deepspeed, tmp_path, "stopped", stop_after=2, num_ranks=3, stage="pipeline")

    second = train(deepspeed, tmp_path, "stopped", stop_after=-1, num_ranks=3, stage="pipeline")

    for rank in range(3):
        assert [batch[:3] for batch in first[rank]["trained"]] == [[0, index, rank == 1] for index in range(3)]
        assert first[rank]["trained"] + second[rank]["trained"] == whole[rank]["trained"]
        assert second[rank]["metrics"] == whole[rank]["metrics"]
