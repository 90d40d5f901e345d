"""What becomes of a training when the disk is full, a process dies, or ranks contradict each other."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from processes import wait_for
from pytorch.ranks import Ranks
from pytorch.trials import NUM_SAMPLES, LineTrial, dataset, fixed_seed
from torch.utils.data import Dataset

from core_sdk import client
from core_sdk.errors import NotEnoughSpaceError
from core_sdk.pytorch import Batch, DataLoader, Epoch, FitResult, PyTorchCallback, PyTorchTrialContext, Trainer, init


def fit(
    make: Callable[[PyTorchTrialContext], LineTrial] = LineTrial,
    *,
    job: str = "job",
    storage: Any = None,
    **arguments: Any,
) -> tuple[FitResult, LineTrial]:
    with init(job_id=job, checkpoint_storage=storage) as context:
        fixed_seed(context)
        trial = make(context)
        return Trainer(trial, context).fit(**{"max_length": Epoch(2), "checkpoint_policy": "none", **arguments}), trial


class FillsTheDisk(PyTorchCallback):
    """A callback that writes more into its third checkpoint than the disk can hold."""

    def __init__(self) -> None:
        self.num_saved = 0

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        self.num_saved += 1
        Path(checkpoint_dir, "more").write_bytes(bytes(80_000_000 if self.num_saved == 3 else 1))


def test_a_full_disk_costs_what_was_trained_since_the_last_checkpoint(small_disk: Path) -> None:
    """A full disk raises in the script, and the next start resumes exactly from the last checkpoint."""
    # A checkpoint holds the code of the trial: here, of all tests that this process has imported.
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    _, whole = fit(job="whole")

    def make(context: PyTorchTrialContext) -> LineTrial:
        trial = LineTrial(context)
        trial.callbacks = {"fill": FillsTheDisk()}
        return trial

    with pytest.raises(NotEnoughSpaceError):
        fit(make, storage=str(small_disk / "checkpoints"), checkpoint_period=Batch(1))
    (saved,) = [each for each in client.get_trial(2).list_checkpoints() if each.metadata["steps_completed"] == 2]
    _, rest = fit(storage=str(small_disk / "checkpoints"))

    assert rest.trained == whole.trained[2:]
    assert len(client.get_trial(2).list_checkpoints()) == 3
    assert (small_disk / "checkpoints" / saved.uuid).is_dir()


class Deadly(Dataset[Any]):
    """A dataset whose sample 13 kills the process that reads it."""

    is_cured = False

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        if index == 13 and not self.is_cured:
            os._exit(1)
        return dataset()[index]


class DeadlyTrial(LineTrial):
    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(Deadly(), 4, num_workers=2)


def test_a_worker_that_dies_ends_the_training_with_the_samples_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a worker dies, the error names its samples, and the next start resumes from the newest checkpoint."""
    with pytest.raises(RuntimeError, match="exited unexpectedly") as raised:
        fit(DeadlyTrial, checkpoint_period=Batch(1))
    monkeypatch.setattr(Deadly, "is_cured", True)
    result, _ = fit(DeadlyTrial)

    assert "[12, 13, 14, 15] of epoch 0" in "".join(raised.value.__notes__)
    assert result.steps_completed == 10


class NamesItself(Dataset[Any]):
    """A dataset that records the processes that read it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        (self.directory / f"{os.getpid()}.worker").touch()
        return dataset()[index]


class RankTrial(LineTrial):
    """A trial that fails on rank 1, or on the only rank, in the way that a test asks for."""

    def __init__(self, context: PyTorchTrialContext, what: str, directory: Path) -> None:
        super().__init__(context, batch_size=4)
        self.is_here = context.distributed.rank == context.distributed.size - 1
        self.what = what
        self.directory = directory

    def build_training_data_loader(self) -> DataLoader:
        if self.what == "kill":
            return DataLoader(NamesItself(self.directory), 4, num_workers=2)
        samples = dataset()[: 18 if self.what == "length" and self.is_here else 20]
        return DataLoader(torch.utils.data.TensorDataset(*samples), 4, shuffle=True)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if self.what == "kill" and batch_idx == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, epoch_idx, batch_idx)


def train(what: str, directory: str) -> None:
    rate = 0.1 if what != "hparams" or os.environ["RANK"] == "0" else 0.2
    with init(hparams={"learning_rate": rate}) as context:
        Trainer(RankTrial(context, what, Path(directory)), context).fit(max_length=Epoch(1))


def test_the_workers_of_a_loader_end_after_their_training_was_killed(ranks: Ranks, tmp_path: Path) -> None:
    """Loader workers end by themselves after their training was killed."""
    (process,) = ranks.start(train, 1, "kill", tmp_path)

    assert process.wait() == -signal.SIGKILL

    workers = [int(path.stem) for path in tmp_path.glob("*.worker")]
    assert len(workers) == 2
    wait_for(lambda: not any(map(psutil.pid_exists, workers)))


def test_data_that_differ_between_ranks_are_refused_on_all_of_them(ranks: Ranks, tmp_path: Path) -> None:
    """Ranks whose datasets differ are refused, and every rank's error says how they differ."""
    processes = ranks.start(train, 2, "length", tmp_path)

    assert all(process.wait() == 1 for process in processes)

    for process in processes:
        words = "loaders of build_training_data_loader() differ between the ranks: the length is 20, 18. Return a"
        assert words in process.stderr.read_text()


def test_hyperparameters_that_differ_between_ranks_are_warned_of(ranks: Ranks, tmp_path: Path) -> None:
    """If hyperparameters differ between ranks, the chief warns and its values are recorded."""
    processes = ranks.start(train, 2, "hparams", tmp_path)

    assert [process.wait() for process in processes] == [0, 0]

    warnings = [process.stderr.read_text().count("learning_rate is 0.2 instead of 0.1") for process in processes]
    assert warnings == [1, 0]
    assert client.get_trial(1).hparams == {"learning_rate": 0.1}
