"""What a framework deletes of its own files goes from the home too, and what it trains with is recorded."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from frameworks.environments import FrameworkEnvironment

from core_sdk import client
from core_sdk._home import Home

TIMEOUT_S = 300
pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)

LIGHTNING = """
import sys
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from core_sdk import core
from core_sdk.integrations.lightning import CoreSDKCallback

SCORES = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 1.0, 7.0]

class Model(BoringModel):
    def __init__(self, lr, width=8):
        super().__init__()
        self.save_hyperparameters()

    def validation_step(self, batch, batch_idx):
        self.log("score", SCORES[self.current_epoch])

num_epochs, options = int(sys.argv[1]), eval(sys.argv[2])
quiet = dict(enable_progress_bar=False, enable_model_summary=False, logger=False)
with core.init(job_id="kept", hparams=eval(sys.argv[3]) if sys.argv[3:] else None) as core_context:
    callback = CoreSDKCallback(core_context)
    saving = [ModelCheckpoint("files", "{epoch}", **each) for each in options]
    trainer = Trainer(
        max_epochs=num_epochs, limit_train_batches=2, limit_val_batches=1, accelerator="cpu",
        num_sanity_val_steps=0, callbacks=[callback, *saving], **quiet,
    )
    trainer.fit(Model(lr=0.5), ckpt_path=callback.latest_checkpoint())
"""

TRANSFORMERS = """
import sys
import torch
from transformers import Trainer, TrainingArguments
from core_sdk import core
from core_sdk.integrations.transformers import CoreSDKCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels):
        return {"loss": (self.layer(x) - labels).square().mean()}

data = [{"x": torch.rand(2), "labels": torch.rand(1)} for _ in range(16)]
arguments = TrainingArguments(
    "files", num_train_epochs=int(sys.argv[1]), save_strategy="epoch", report_to=[], use_cpu=True, disable_tqdm=True,
    learning_rate=0.25, lr_scheduler_type="constant", **eval(sys.argv[2]),
)
with core.init(job_id="kept", checkpoint_storage=eval(sys.argv[3]) if sys.argv[3:] else None) as core_context:
    callback = CoreSDKCallback(core_context)
    trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.latest_checkpoint())
"""

EVALUATIONS = """
import torch
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from core_sdk import core
from core_sdk.integrations.transformers import CoreSDKCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels):
        output = self.layer(x)
        return {"loss": (output - labels).square().mean(), "logits": output}

data = [{"x": torch.rand(2), "labels": torch.rand(1)} for _ in range(16)]

def make_trainer(callbacks, **options):
    arguments = TrainingArguments(
        "files", num_train_epochs=2, report_to=[], use_cpu=True, disable_tqdm=True, eval_strategy="epoch",
        save_strategy="epoch", metric_for_best_model="loss", **options,
    )
    return Trainer(Model(), arguments, train_dataset=data, eval_dataset=data, callbacks=callbacks)

with core.init() as core_context:
    trainer = make_trainer([CoreSDKCallback(core_context)], load_best_model_at_end=True)
    trainer.train()
    trainer.evaluate()
    trainer.evaluate(metric_key_prefix="test")
    trainer.predict(data)
with core.init() as core_context:
    make_trainer([CoreSDKCallback(core_context)], save_only_model=True).train()
with core.init() as core_context:
    trainer = make_trainer([EarlyStoppingCallback()])
    trainer.add_callback(CoreSDKCallback(core_context))
    trainer.train()
"""

ACCELERATE = """
from accelerate import Accelerator
from core_sdk import core
from core_sdk.integrations.accelerate import CoreSDKTracker

with core.init() as core_context:
    accelerator = Accelerator(cpu=True, log_with=CoreSDKTracker(core_context))
    accelerator.init_trackers("digits", config={"lr": 0.5, "optimizer": "adam"})
"""


def run(callbacks: FrameworkEnvironment, directory: Path, source: str, *arguments: object) -> None:
    ended = end(callbacks, directory, source, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def end(
    callbacks: FrameworkEnvironment, directory: Path, source: str, *arguments: object
) -> subprocess.CompletedProcess[str]:
    (directory / "train.py").write_text(source)
    return subprocess.run(
        [str(callbacks.python), "train.py", *map(str, arguments)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **callbacks.variables()},
    )


def copies() -> list[str]:
    """Returns the names of the files of which the home has copies, from old to new."""
    stored = sorted(client.get_trial(1).list_checkpoints(), key=lambda each: each.metadata["steps_completed"])
    return [Path(each.metadata["copy_of"]).name for each in stored]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "files").iterdir())


BEST = {"monitor": "score", "mode": "max", "save_top_k": 2}
LAST = {"save_top_k": 0, "save_last": True}


def test_the_home_has_copies_of_the_files_that_lightning_keeps(
    callbacks: FrameworkEnvironment, tmp_path: Path, home: Home
) -> None:
    """The home has copies of the checkpoint files that Lightning's callbacks keep, also after a resume."""
    run(callbacks, tmp_path, LIGHTNING, 5, [BEST, LAST])
    first = copies()
    run(callbacks, tmp_path, LIGHTNING, 7, [BEST, LAST])

    assert first == ["epoch=3.ckpt", "epoch=4.ckpt"]
    *best, last = copies()
    assert best == ["epoch=3.ckpt", "epoch=5.ckpt"] == files(tmp_path)[:2]
    assert last.startswith("last")
    assert len(home.trial(1).attempts()) == 2
    assert home.trial(1).read_record().hparams == {"lr": 0.5, "width": 8}


def test_where_lightning_keeps_all_the_home_does(callbacks: FrameworkEnvironment, tmp_path: Path, home: Home) -> None:
    """With save_top_k=-1 the home keeps a copy of each of Lightning's files; hyperparameters of `init()` stay."""
    run(callbacks, tmp_path, LIGHTNING, 4, [{"save_top_k": -1, "save_last": True}], {"own": 1})

    assert copies() == [f"epoch={epoch}.ckpt" for epoch in range(4)]
    assert home.trial(1).read_record().hparams == {"own": 1}


def test_the_home_has_copies_of_the_directories_that_the_trainer_keeps(
    callbacks: FrameworkEnvironment, tmp_path: Path, home: Home
) -> None:
    """`save_total_limit` also holds after a resume. The arguments that the script sets are recorded."""
    run(callbacks, tmp_path, TRANSFORMERS, 4, {"save_total_limit": 2})
    run(callbacks, tmp_path, TRANSFORMERS, 5, {"save_total_limit": 2})

    assert copies() == ["checkpoint-8", "checkpoint-10"] == sorted(files(tmp_path), key=len)
    hparams = home.trial(1).read_record().hparams
    assert hparams.items() > {"num_train_epochs": 4, "learning_rate": 0.25, "lr_scheduler_type": "constant"}.items()
    assert len(hparams) < 10


def test_where_the_trainer_keeps_all_the_home_does(callbacks: FrameworkEnvironment, tmp_path: Path) -> None:
    """Without `save_total_limit`, the home keeps a copy of each checkpoint, as the Trainer does."""
    run(callbacks, tmp_path, TRANSFORMERS, 3, {})

    assert copies() == ["checkpoint-2", "checkpoint-4", "checkpoint-6"] == files(tmp_path)


def test_what_the_policy_keeps_for_ever_stays_when_its_file_goes(
    callbacks: FrameworkEnvironment, tmp_path: Path
) -> None:
    """`keep_every` keeps a copy of which the Trainer has deleted its own directory."""
    run(callbacks, tmp_path, TRANSFORMERS, 4, {"save_total_limit": 1}, {"keep_every": {"steps": 5}})

    assert copies() == ["checkpoint-6", "checkpoint-8"]
    assert files(tmp_path) == ["checkpoint-8"]


def test_each_evaluation_is_reported_once(callbacks: FrameworkEnvironment, tmp_path: Path) -> None:
    """Each evaluation is reported once; checkpoints of models alone are not stored, and lost callbacks are refused."""
    ended = end(callbacks, tmp_path, EVALUATIONS)

    message = "ValueError: a resume would not restore the state of EarlyStoppingCallback: pass Core SDK's callback to "
    assert message in ended.stderr, ended.stderr
    evaluated, only_models, refused = map(client.get_trial, (1, 2, 3))
    reports = [(each.group, each.steps_completed) for each in evaluated.iter_metrics()]
    evaluations = [("validation", 4), ("validation_2", 4), ("test", 4), ("test_2", 4)]
    assert reports == [("validation", 2), ("training", 4), *evaluations] or reports == [
        ("validation", 2),
        ("validation", 4),
        ("training", 4),
        *evaluations[1:],
    ]
    assert all("loss" in each.metrics for each in evaluated.iter_metrics() if each.group != "training")
    assert (len(evaluated.list_checkpoints()), only_models.list_checkpoints()) == (2, [])
    assert "save_only_model=True: what the Trainer saves is not stored" in ended.stderr
    assert refused.state.name == "ERROR"


def test_what_an_accelerator_is_given_is_recorded(callbacks: FrameworkEnvironment, tmp_path: Path, home: Home) -> None:
    """The `config` given to `init_trackers()` is recorded as hyperparameters."""
    run(callbacks, tmp_path, ACCELERATE)

    assert home.trial(1).read_record().hparams == {"lr": 0.5, "optimizer": "adam"}
