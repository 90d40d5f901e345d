"""Scripts of the shape that Determined's guides to Trials and the Trainer teach, with only their import changed."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from masters import running_master

from core_sdk._home import Home
from core_sdk.client import Tracker

MODEL_DEF = """\
import logging
from typing import Any, Dict

import torch
from torch import nn

from core_sdk import pytorch
from core_sdk.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext


def data(num_samples):
    inputs = torch.randn(num_samples, 16, generator=torch.Generator().manual_seed(num_samples))
    return torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(dim=1))


class MNistTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext, hparams: Dict = None) -> None:
        self.context = context
        lr = context.get_hparam("lr") if hparams is None else hparams["lr"]
        self.model = self.context.wrap_model(nn.Sequential(nn.Linear(16, 4), nn.LogSoftmax(dim=1)))
        self.optimizer = self.context.wrap_optimizer(torch.optim.Adadelta(self.model.parameters(), lr=lr))
        scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, gamma=0.9, step_size=2)
        self.lr_sch = self.context.wrap_lr_scheduler(
            scheduler, step_mode=pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH
        )

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(data(256), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(data(100), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int) -> Dict[str, torch.Tensor]:
        inputs, labels = batch
        loss = torch.nn.functional.nll_loss(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData) -> Dict[str, Any]:
        inputs, labels = batch
        output = self.model(inputs)
        accuracy = (output.argmax(dim=1) == labels).float().mean().item()
        return {"validation_loss": torch.nn.functional.nll_loss(output, labels).item(), "accuracy": accuracy}
"""

TRIAL_GUIDE = """\
from typing import Any, Dict

import numpy as np
import torch
from torch import nn

import core_sdk as det
from core_sdk import pytorch
from core_sdk.pytorch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial, PyTorchTrialContext


class Samples(torch.utils.data.Dataset):
    def __init__(self, num_samples):
        self.inputs = np.random.RandomState(num_samples).randn(num_samples, 8).astype(np.float32)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return {"data": [{"image": self.inputs[index]}], "label": (self.inputs[index, :2].argmax(), index)}


class Epochs(PyTorchCallback):
    def __init__(self):
        self.ended = 0

    def on_training_epoch_end(self, epoch_idx):
        self.ended = epoch_idx + 1

    def state_dict(self):
        return {"ended": self.ended}

    def load_state_dict(self, state_dict):
        self.ended = state_dict["ended"]


class MyTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.download_directory = f"/tmp/data-rank{self.context.distributed.get_rank()}"
        self.model = self.context.wrap_model(nn.Linear(8, 2))
        optimizer = torch.optim.SGD(
            self.model.parameters(),
            self.context.get_hparam("lr"),
            momentum=self.context.get_hparam("momentum"),
            weight_decay=self.context.get_hparam("weight_decay"),
        )
        self.optimizer = self.context.wrap_optimizer(optimizer)
        lr_sch = torch.optim.lr_scheduler.StepLR(self.optimizer, gamma=0.1, step_size=2)
        self.lr_sch = self.context.wrap_lr_scheduler(lr_sch, step_mode=LRScheduler.StepMode.MANUAL_STEP)
        self.criterion = nn.CrossEntropyLoss()

    def build_training_data_loader(self) -> DataLoader:
        workers = self.context.get_hparam("workers")
        return pytorch.DataLoader(
            Samples(64), batch_size=self.context.get_per_slot_batch_size(), shuffle=True, num_workers=workers
        )

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(Samples(50), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch, epoch_idx: int, batch_idx: int):
        images, (target, _) = batch["data"][0]["image"], batch["label"]
        output = self.model(images)
        loss = self.criterion(output, target)
        top1 = (output.argmax(dim=1) == target).float().mean(dim=0, keepdim=True)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0))
        if self.context.is_epoch_end():
            self.lr_sch.step()
        return {"loss": loss.item(), "top1": top1[0]}

    def evaluate_batch(self, batch) -> Dict[str, Any]:
        images, (target, _) = batch["data"][0]["image"], batch["label"]
        return {"right": (self.model(images).argmax(dim=1) == target).sum(), "largest": float(len(target))}

    def evaluation_reducer(self):
        return {"right": pytorch.Reducer.SUM, "largest": pytorch.Reducer.MAX}

    def build_callbacks(self):
        return {"epochs": Epochs()}


hparams = {"global_batch_size": 16, "lr": 0.5, "momentum": 0.9, "weight_decay": 1e-4, "workers": 0}
with det.pytorch.init(hparams=hparams) as context:
    det.pytorch.Trainer(MyTrial(context), context).fit(max_length=pytorch.Epoch(3), checkpoint_policy="all")
"""

LOCAL = """\
import logging
import pathlib

import yaml

import core_sdk as det
from core_sdk import pytorch
from model_def import MNistTrial


def main():
    hparams = {"global_batch_size": 32, "lr": 5.0}
    expconf = yaml.safe_load(pathlib.Path("./det.yaml").read_text())
    with det.pytorch.init(hparams=hparams, exp_conf=expconf) as train_context:
        trial = MNistTrial(train_context, hparams)
        trainer = det.pytorch.Trainer(trial, train_context)
        trainer.configure_profiler(enabled=True, sync_timings=True, begin_on_batch=0, end_after_batch=10)
        trainer.fit(
            max_length=pytorch.Epoch(4),
            checkpoint_period=pytorch.Batch([2, 5]),
            validation_period=pytorch.Batch(10),
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()
"""

TEST_MODE = LOCAL.replace(
    "validation_period=pytorch.Batch(10),", "validation_period=pytorch.Batch(10),\n            test_mode=True,"
)

LOCAL_OR_CLUSTER = """\
import logging
import os

import torch.distributed as dist

import core_sdk as det
from core_sdk import core, pytorch
from model_def import MNistTrial


def main():
    info = det.get_cluster_info()
    local = info is None
    if local:
        dist.init_process_group(backend="gloo")
        os.environ["USE_TORCH_DISTRIBUTED"] = "true"
        distributed_context = core.DistributedContext.from_torch_distributed(chief_ip="localhost")
    else:
        distributed_context = None
    hparams = {"global_batch_size": 32, "lr": 5.0} if local else info.trial.hparams
    with det.pytorch.init(hparams=hparams, distributed=distributed_context) as train_context:
        print("batches of", train_context.get_per_slot_batch_size(), flush=True)
        trial = MNistTrial(train_context)
        trainer = det.pytorch.Trainer(trial, train_context)
        trainer.fit(
            max_length=pytorch.Epoch(1),
            checkpoint_period=pytorch.Batch(10),
            validation_period=pytorch.Batch(10),
            latest_checkpoint=None if local else info.latest_checkpoint,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()
"""

ON_CLUSTER = """\
import core_sdk as det
import model_def
from core_sdk import pytorch


def on_cluster():
    hparams = det.get_cluster_info().trial.hparams
    with det.pytorch.init() as train_context:
        print("batches of", train_context.get_per_slot_batch_size(), flush=True)
        trial_inst = model_def.MNistTrial(train_context, hparams)
        trainer = det.pytorch.Trainer(trial_inst, train_context)
        trainer.fit(
            checkpoint_period=pytorch.Batch(10),
            validation_period=pytorch.Batch(100),
            latest_checkpoint=det.get_cluster_info().latest_checkpoint,
        )


if __name__ == "__main__":
    on_cluster()
"""

CONFIG = """\
name: my_pytorch_trainer_trial
hyperparameters:
  global_batch_size: 32
  lr: 5.0
searcher:
  name: single
  metric: validation_loss
  max_length:
    batches: 37
resources:
  slots_per_trial: 2
entrypoint: python3 -m determined.launch.torch_distributed python3 train.py
max_restarts: 0
"""


LOADING = """\
import sys

import core_sdk as det
from core_sdk import pytorch
from core_sdk.experimental import client

path = client.get_checkpoint(sys.argv[1]).download()
with det.import_from_path(path + "/code/"):
    import model_def as my_model_def

context = pytorch.CheckpointLoadContext(hparams={"lr": 5.0, "global_batch_size": 32})
my_trial = my_model_def.MNistTrial(context)
loaded = pytorch.load_trial_from_checkpoint_path(path)
print(type(my_trial).__name__, type(loaded).__name__, loaded.model[0].weight.abs().sum().item() > 0)
"""


@pytest.fixture(autouse=True)
def model_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes a working directory with the guide's Trial and configuration."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "model_def.py").write_text(MODEL_DEF)
    (directory / "det.yaml").write_text(CONFIG)
    monkeypatch.chdir(directory)
    monkeypatch.syspath_prepend(directory)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield directory
    sys.modules.pop("model_def", None)


def run(script: str) -> None:
    """Runs a script as `python train.py` would, in this process."""
    Path("train.py").write_text(script)
    runpy.run_path("train.py", run_name="__main__")


def core_sdk(*arguments: str) -> str:
    """Runs `core-sdk` and returns its output; the command must succeed."""
    result = subprocess.run(["core-sdk", *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def steps(group: str) -> list[int | None]:
    return [report.steps_completed for report in Tracker().get_trial(1).iter_metrics(group)]


def checkpoint_steps() -> list[int]:
    return sorted(each.metadata["steps_completed"] for each in Tracker().get_trial(1).list_checkpoints())


def accuracies() -> list[Any]:
    return [report.metrics["accuracy"] for report in Tracker().get_trial(1).iter_metrics("validation")]


def test_a_script_trains_locally() -> None:
    """Steps 1 to 3: batches 2 and 5 are saved, and every tenth is validated; the end is both."""
    run(LOCAL)

    assert steps("validation") == [10, 20, 30, 32]
    assert {2, 5, 32} <= set(checkpoint_steps())
    assert accuracies()[-1] > 0.5


def test_a_script_in_test_mode_trains_one_batch() -> None:
    """Step 3 of the guide: in test mode the script trains one batch, validates and saves."""
    run(TEST_MODE)

    assert steps("validation") == checkpoint_steps() == [1]


def test_a_trial_is_loaded_from_its_checkpoint() -> None:
    """Step 6 of the guide: a trial is loaded with the code that is stored in its checkpoint."""
    run(TEST_MODE)
    uuid = Tracker().get_trial(1).list_checkpoints()[0].uuid
    Path("model_def.py").unlink()
    Path("load.py").write_text(LOADING)

    ended = subprocess.run([sys.executable, "load.py", uuid], capture_output=True, text=True, check=False)

    assert ended.stdout == "MNistTrial MNistTrial True\n", ended.stderr


def test_a_trial_with_all_that_its_guide_teaches_trains() -> None:
    """Nested batches of arrays, schedulers, clipping, reducers and callbacks, whose state is saved."""
    run(TRIAL_GUIDE)

    (validation,) = Tracker().get_trial(1).iter_metrics("validation")
    (checkpoint,) = Tracker().get_trial(1).list_checkpoints()
    state = torch.load(Path(checkpoint.download("checkpoint")) / "state_dict.pth", weights_only=True)
    assert validation.metrics["right"] > 35
    assert validation.metrics["largest"] == 16
    assert state["callbacks"] == {"epochs": {"ended": 3}}
    assert state["lr_schedulers_state_dict"][0]["last_epoch"] == 3


@pytest.mark.parametrize("launcher", ["torch.distributed.run", "launch.torch_distributed"])
def test_a_script_trains_locally_on_two_ranks(launcher: str) -> None:
    """The guide's script trains on two ranks, started by torchrun or by the launcher, with half of each batch each."""
    Path("train.py").write_text(LOCAL_OR_CLUSTER)
    command = [sys.executable, "-m", launcher, "--nproc-per-node=2"]
    command += ["train.py"] if launcher.startswith("torch.") else ["--", "train.py"]

    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("batches of 16") == 2
    assert steps("validation") == [8]


@pytest.mark.parametrize(
    "script",
    [ON_CLUSTER, LOCAL_OR_CLUSTER],
    ids=["on cluster", "local or cluster"],
)
def test_a_configuration_is_submitted(home: Home, script: str) -> None:
    """Steps 4 and 5 of the guide: the submitted configuration decides the length of the training."""
    Path("train.py").write_text(script)

    with running_master(Home.create(home.root)):
        core_sdk("experiment", "create", "det.yaml", ".", "--follow")

    assert core_sdk("trial", "logs", "1").count("batches of 16") == 2
    assert steps("validation")[-1] == 37


@pytest.mark.parametrize(
    "entrypoint",
    [
        "model_def:MNistTrial",
        "python3 -m determined.launch.torch_distributed --trial model_def:MNistTrial",
    ],
)
@pytest.mark.parametrize("num_slots", [1, 2])
def test_a_trial_class_trains_without_a_script(home: Home, entrypoint: str, num_slots: int) -> None:
    """A configuration with a Trial class as its entrypoint trains it without a script."""
    options = [f"entrypoint={entrypoint}", f"resources.slots_per_trial={num_slots}"]
    options += ["min_validation_period={batches: 20}", "min_checkpoint_period={epochs: 2}", "scheduling_unit=5"]
    overrides = [word for option in options for word in ("--config", option)]

    with running_master(Home.create(home.root)):
        core_sdk("experiment", "create", "det.yaml", ".", "--follow", *overrides)

    assert steps("validation") == [20, 37]
    assert {16, 32, 37} <= set(checkpoint_steps())
    assert steps("training") == [5, 10, 15, 16, 20, 25, 30, 32, 35, 37]


@pytest.mark.parametrize("is_class", [pytest.param(True, id="class"), pytest.param(False, id="script")])
def test_an_experiment_is_tested_with_one_batch(home: Home, is_class: bool) -> None:
    """`--local --test` trains one batch and leaves no experiment."""
    Path("train.py").write_text(ON_CLUSTER)
    entrypoint = "model_def:MNistTrial" if is_class else "python3 train.py"
    overrides = ["--config", f"entrypoint={entrypoint}", "--config", "resources.slots_per_trial=1"]

    told = core_sdk("experiment", "create", "det.yaml", ".", "--local", "--test", *overrides)

    assert "ok: it has ended with a checkpoint" in told
    assert home.experiment_ids() == home.trial_ids() == []


def test_a_class_that_does_not_exist_is_said_in_one_line() -> None:
    """A missing Trial class is reported in one line."""
    ended = subprocess.run(
        [sys.executable, "-m", "core_sdk.pytorch", "model_def:Other"], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("core_sdk.pytorch: cannot train 'model_def:Other': ")
    assert len(ended.stderr.splitlines()) == 1
