"""A script with the predecessor's callback for Transformers: only its import lines are others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from frameworks.environments import FrameworkEnvironment

from core_sdk import client
from core_sdk.util import merge_dicts

# Its configuration lies in the hyperparameters; the trial is paused in the middle of the second epoch.
SCRIPT = """
import os, signal
import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint
import core_sdk as det
from core_sdk.transformers import DetCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels):
        outputs = self.layer(x)
        return {"loss": (outputs - labels).square().mean(), "logits": outputs}

class Interruption(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 5 and det.get_cluster_info().latest_checkpoint is None:
            os.kill(os.getpid(), signal.SIGTERM)

def main(core_context, training_args):
    data = [{"x": torch.rand(2), "labels": torch.rand(1)} for _ in range(32)]
    callback = DetCallback(core_context, training_args, filter_metrics=["loss"], user_data={"answer": 42})
    checkpoint = training_args.resume_from_checkpoint
    if checkpoint is None and os.path.isdir(training_args.output_dir):
        checkpoint = get_last_checkpoint(training_args.output_dir)
    print("from", checkpoint)
    trainer = transformers.Trainer(Model(), training_args, train_dataset=data, eval_dataset=data[:8])
    trainer.add_callback(callback)
    trainer.add_callback(Interruption())
    trainer.train(resume_from_checkpoint=checkpoint)

info = det.get_cluster_info()
assert info is not None
arguments = det.util.merge_dicts(
    {"save_strategy": "steps", "save_steps": 4, "report_to": [], "disable_tqdm": True},
    info.trial.hparams["training_args"],
)
training_args = transformers.TrainingArguments(use_cpu=True, **arguments)
distributed = det.core.DistributedContext.from_torch_distributed()
with det.core.init(distributed=distributed) as core_context:
    core_context.preempt.should_preempt()
    main(core_context, training_args)
"""

ARGUMENTS = (
    '{"output_dir": "out", "num_train_epochs": 3, "logging_steps": 2, "eval_strategy": "epoch", "save_total_limit": 2}'
)


def core_sdk(callbacks: FrameworkEnvironment, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(callbacks.program("python")), "-m", "core_sdk._interfaces.cli", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **callbacks.variables()},
    )


@pytest.mark.timeout(600)
def test_a_script_with_det_callback_runs_by_its_import_line(callbacks: FrameworkEnvironment, tmp_path: Path) -> None:
    """Paused in an epoch and resumed; metrics keep their names, and files their places."""
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = ["python", "-m", "launch.torch_distributed", "--nproc-per-node=1", "--", "python", "train.py"]

    paused = core_sdk(callbacks, tmp_path, "run", "--hparam", f"training_args={ARGUMENTS}", "--", *launch)
    resumed = core_sdk(callbacks, tmp_path, "trial", "resume", "1")

    assert paused.returncode == 75, paused.stdout + paused.stderr
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "from out/checkpoint-6" in resumed.stdout
    trial = client.get_trial(1)
    validations = list(trial.iter_metrics("validation"))
    assert [each.steps_completed for each in validations] == [4, 8, 12]
    assert validations[0].metrics.keys() == {"eval_loss"}
    assert {each.steps_completed for each in trial.iter_metrics("training")} == {2, 4, 6, 8, 10, 12}
    newest, before = trial.list_checkpoints()
    assert (newest.metadata["steps_completed"], before.metadata["steps_completed"]) == (12, 8)
    assert {"checkpoint-12/my_data.json", "checkpoint-12/trainer_state.json"} <= newest.resources.keys()


def test_dicts_are_merged_into_a_new_one() -> None:
    """merge_dicts() returns a new dict in which the second one's values win, and changes neither."""
    base, source = {"a": 1, "b": {"c": 1, "d": [1]}}, {"b": {"c": 2}, "e": {"f": 3}}

    merged = merge_dicts(base, source)

    assert merged == {"a": 1, "b": {"c": 2, "d": [1]}, "e": {"f": 3}}
    merged["b"]["d"].append(2)
    assert base == {"a": 1, "b": {"c": 1, "d": [1]}}
