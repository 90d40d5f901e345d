"""A training of a framework that is stopped around a validation has each validation once, and each batch once."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks.environments import FrameworkEnvironment

from core_sdk import client
from core_sdk._machine.processes import STOPPED

TIMEOUT_S = 300
pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)

# Both train two epochs of eight batches, and ask themselves to stop after a batch of their first attempt.
LIGHTNING = """
import os, signal, sys
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from core_sdk import core
from core_sdk.integrations.lightning import CoreSDKCallback

class Model(BoringModel):
    def training_step(self, batch, batch_idx):
        output = super().training_step(batch, batch_idx)
        self.log("loss", output["loss"])
        return output

    def validation_step(self, batch, batch_idx):
        self.log("score", 1.0)

class StopsItself(Callback):
    def on_train_batch_end(self, trainer, *others):
        if trainer.global_step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

stop_at, options = int(sys.argv[1]), eval(sys.argv[2])
quiet = dict(enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, logger=False)
with core.init(job_id="stopped") as core_context:
    callback = CoreSDKCallback(core_context)
    trainer = Trainer(
        max_epochs=2, limit_train_batches=8, limit_val_batches=1, accelerator="cpu", log_every_n_steps=1,
        callbacks=[StopsItself(), callback], **quiet, **options,
    )
    trainer.fit(Model(), ckpt_path=callback.latest_checkpoint())
"""

TRANSFORMERS = """
import os, signal, sys
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from core_sdk import core
from core_sdk.integrations.transformers import CoreSDKCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels):
        output = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(output, labels), "logits": output}

class StopsItself(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

stop_at, options = int(sys.argv[1]), eval(sys.argv[2])
data = [{"x": torch.ones(2), "labels": torch.zeros(1)} for _ in range(64)]
with core.init(job_id="stopped") as core_context:
    callback = CoreSDKCallback(core_context)
    arguments = TrainingArguments(
        "files", num_train_epochs=2, per_device_train_batch_size=8, logging_steps=1, save_strategy="no", use_cpu=True,
        report_to=[], disable_tqdm=True, **options,
    )
    trainer = Trainer(Model(), arguments, train_dataset=data, eval_dataset=data, callbacks=[StopsItself(), callback])
    trainer.train(resume_from_checkpoint=callback.latest_checkpoint())
"""


@pytest.mark.parametrize(
    ("source", "stop_at", "options", "validations"),
    [
        (LIGHTNING, 8, {}, [8, 16]),
        (LIGHTNING, 4, {"val_check_interval": 4}, [4, 8, 12, 16]),
        (LIGHTNING, 3, {"val_check_interval": 1}, list(range(1, 17))),
        (LIGHTNING, 6, {"val_check_interval": 6, "check_val_every_n_epoch": None}, [6, 12]),
        (LIGHTNING, 8, {"check_val_every_n_epoch": 2}, [16]),
        (TRANSFORMERS, 7, {"eval_strategy": "epoch"}, [8, 16]),
        (TRANSFORMERS, 8, {"eval_strategy": "epoch"}, [8, 16]),
        (TRANSFORMERS, 4, {"eval_strategy": "steps", "eval_steps": 4}, [4, 8, 12, 16]),
    ],
    ids=[
        "end of an epoch",
        "within an epoch",
        "each batch",
        "across epochs",
        "every other epoch",
        "transformers, before the end of an epoch",
        "transformers, end of an epoch",
        "transformers, within an epoch",
    ],
)
def test_a_stop_beside_a_validation_loses_none(
    callbacks: FrameworkEnvironment,
    tmp_path: Path,
    source: str,
    stop_at: int,
    options: dict[str, object],
    validations: list[int],
) -> None:
    """The stop waits for a validation that is due, which a resumed training would leave out."""
    (tmp_path / "train.py").write_text(source)
    for number in (stop_at, 0):
        ended = callbacks.run("train.py", str(number), repr(options), cwd=tmp_path, timeout_s=TIMEOUT_S)
        assert ended.returncode == (STOPPED if number else 0), ended.stdout + ended.stderr

    trial = client.get_trial(1)
    trained = [
        (report.steps_completed, report.trial_run_id)
        for report in trial.iter_metrics("training")
        if "loss" in report.metrics  # a summary follows at the end
    ]
    assert trained == [(step, 1 if step <= stop_at else 2) for step in range(1, 17)]
    assert [report.steps_completed for report in trial.iter_metrics("validation")] == validations
