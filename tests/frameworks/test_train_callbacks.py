"""Lightning and Transformers in a training function: their epochs are reports, each with a checkpoint."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from frameworks.environments import FrameworkEnvironment

_BEGINNING = """
import os, tempfile
from core_sdk import train
from core_sdk.train import *

def fit(function):
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=2)).fit()

"""

LIGHTNING = """
def function():
    from lightning.pytorch import Trainer
    from lightning.pytorch.demos.boring_classes import BoringModel
    from core_sdk.train.lightning import (
        RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer
    )

    class Model(BoringModel):
        def training_step(self, batch, batch_idx):
            step = super().training_step(batch, batch_idx)
            self.log("loss", step["loss"])
            return step

    options = dict(max_epochs=2, limit_train_batches=3, limit_val_batches=0, accelerator="cpu", logger=False)
    quiet = dict(enable_progress_bar=False, enable_checkpointing=False)
    alone = Trainer(**options, **quiet)
    try:
        prepare_trainer(alone)
    except ValueError as error:
        assert "the Trainer has 1 ranks, and there are 2 workers" in str(error)
    plugins, callbacks = [RayLightningEnvironment()], [RayTrainReportCallback()]
    trainer = Trainer(strategy=RayDDPStrategy(), plugins=plugins, callbacks=callbacks, **options, **quiet)
    prepare_trainer(trainer).fit(Model())
    return trainer.world_size, trainer.local_rank

result = fit(function)
assert result.return_value == (2, 0)
assert result.metrics_dataframe["step"].tolist() == [3, 6]
assert "checkpoint.ckpt" in os.listdir(result.checkpoint.path)
"""

TRANSFORMERS = """
def function():
    import torch
    from transformers import Trainer, TrainingArguments
    from core_sdk.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x, labels):
            return {"loss": (self.layer(x) - labels).square().mean()}

    data = [{"x": torch.rand(2), "labels": torch.rand(1)} for _ in range(32)]
    with tempfile.TemporaryDirectory() as own:
        directory = train.collective.broadcast_from_rank_zero(own)
        arguments = TrainingArguments(
            directory, num_train_epochs=2, save_strategy="epoch", logging_steps=1, report_to=[], use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[RayTrainReportCallback()])
        prepare_trainer(trainer).train()
        train.collective.barrier()
    return trainer.args.world_size

result = fit(function)
assert result.return_value == 2
assert result.metrics_dataframe["epoch"].tolist() == [1.0, 2.0]
assert "checkpoint" in os.listdir(result.checkpoint.path)
"""

OF_SCRIPTS = """
def function(config):
    import torch
    from lightning.pytorch import Trainer
    from lightning.pytorch.demos.boring_classes import BoringModel
    from core_sdk.integrations.lightning import CoreSDKCallback
    from core_sdk.train.lightning import RayDDPStrategy, RayLightningEnvironment

    class Model(BoringModel):
        def training_step(self, batch, batch_idx):
            died = os.path.join(config["directory"], "died")
            is_rank_1 = train.get_context().get_world_rank() == 1
            if self.trainer.current_epoch == 1 and is_rank_1 and not os.path.exists(died):
                open(died, "w").close()
                os.kill(os.getpid(), 9)
            step = super().training_step(batch, batch_idx)
            self.log("loss", step["loss"])
            return step

    torch.manual_seed(0)
    callback = CoreSDKCallback(train.get_context().core_context)
    trainer = Trainer(
        strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()], callbacks=[callback], max_epochs=3,
        limit_train_batches=4, limit_val_batches=2, accelerator="cpu", enable_progress_bar=False, log_every_n_steps=1,
        default_root_dir=config["directory"],
    )
    trainer.fit(Model(), ckpt_path=callback.latest_checkpoint())
    return trainer.current_epoch

with tempfile.TemporaryDirectory() as directory:
    run = RunConfig(failure_config=FailureConfig(max_failures=1))
    config, scaling = {"directory": directory}, ScalingConfig(num_workers=2)
    trainer = TorchTrainer(function, train_loop_config=config, scaling_config=scaling, run_config=run)
    result = trainer.fit()
assert result.return_value == 3
frame = result.metrics_dataframe
losses = [steps for steps, loss in zip(frame["steps_completed"], frame["loss"]) if loss == loss]
assert losses == list(range(1, 13)), losses
assert result.checkpoint is not None
"""


@pytest.mark.parametrize(
    "source",
    [
        LIGHTNING,
        TRANSFORMERS,
        OF_SCRIPTS,
    ],
    ids=["lightning", "transformers", "callback of scripts"],
)
def test_its_epochs_are_reports_with_checkpoints(source: str, callbacks: FrameworkEnvironment, tmp_path: Path) -> None:
    """On two workers, each epoch of the library's trainer is a report with a checkpoint."""
    script = tmp_path / "script.py"
    script.write_text(_BEGINNING + source)

    ended = subprocess.run(
        [str(callbacks.python), str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **callbacks.variables()},
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
