"""A trial that several ranks train: one set of numbers, and one end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from pytorch.ranks import Ranks
from pytorch.trials import LineTrial, fixed_seed
from torch import nn
from torch.utils.data import TensorDataset

from core_sdk import client
from core_sdk.pytorch import (
    Batch,
    DataLoader,
    Epoch,
    FitResult,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Trainer,
    init,
)


class RankTrial(LineTrial):
    """A trial with global batches of 8 samples, divided among the ranks."""

    num_validated = 20

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context, batch_size=8 // context.distributed.size)
        self.count = context.wrap_reducer(sum, name="count", for_training=False)
        # Its buffers are the chief's on every rank before each forward pass.
        self.norm = context.wrap_model(nn.BatchNorm1d(1))

    def build_validation_data_loader(self) -> Any:
        x = torch.arange(float(self.num_validated)).unsqueeze(1)
        return DataLoader(TensorDataset(x, x), self.batch_size)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.model(self.norm(batch[0]))
        self.count.update(len(batch[0]))
        return {"mean_x": batch[0].mean()}


class WholeTrial(RankTrial):
    """A trial that evaluates on the chief only."""

    evaluate_batch = PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        assert self.context.distributed.is_chief
        return {
            "mean_x": torch.cat([x for x, _ in data_loader]).mean(),
            "error": self.model(self.norm(torch.ones(1, 1))).sum(),
        }


class OnRank(PyTorchCallback):
    """A callback that stops the training on one rank after a batch."""

    def __init__(self, context: PyTorchTrialContext, rank: int, how: str) -> None:
        self.context = context
        self.is_here = context.distributed.rank == rank
        self.how = how

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]) -> None:
        if self.is_here and batch_idx == 3:
            if self.how == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
            elif self.how == "request":
                self.context.set_stop_requested(True)


def train(job: str, directory: str, how: str = "", kind: str = "RankTrial", num_validated: str = "20") -> None:
    """Trains and writes this rank's samples and result into a file of the directory."""
    with init(job_id=job, exp_conf={"searcher": {"metric": "mean_x"}}) as context:
        fixed_seed(context)
        trial = globals()[kind](context)
        trial.num_validated = int(num_validated)
        trial.callbacks = {"stop": OnRank(context, 1, how)}
        result = Trainer(trial, context).fit(max_length=Epoch(3), validation_period=Batch(2))
        content = {"trained": trial.trained, "result": vars(result)}
        Path(directory, f"{job}.{context.distributed.rank}").write_text(json.dumps(content))


def results(directory: Path, job: str, num_ranks: int = 2) -> list[tuple[FitResult, list[Any]]]:
    contents = [json.loads((directory / f"{job}.{rank}").read_text()) for rank in range(num_ranks)]
    return [(FitResult(**content["result"]), content["trained"]) for content in contents]


def test_ranks_divide_each_batch_and_have_the_same_result(ranks: Ranks, tmp_path: Path) -> None:
    """Ranks divide each batch, and the metrics equal a single rank's."""
    ranks.run(train, 1, "alone", tmp_path)
    ranks.run(train, 2, "together", tmp_path)

    ((alone, trained_alone),) = results(tmp_path, "alone", 1)
    (chief, trained_first), (other, trained_second) = results(tmp_path, "together")
    assert chief == other
    assert chief.metrics == alone.metrics == {"mean_x": 9.5, "count": 20}
    assert [first[2] + second[2] for first, second in zip(trained_first, trained_second, strict=True)] == [
        batch[2] for batch in trained_alone
    ]
    first, second = (list(client.get_trial(number).iter_metrics("training")) for number in (1, 2))
    assert [each.steps_completed for each in first] == [each.steps_completed for each in second]


def test_a_signal_to_one_rank_stops_all_after_the_same_batch(ranks: Ranks, tmp_path: Path) -> None:
    """A signal to one rank stops all after the same batch, and the resume is exact."""
    ranks.run(train, 2, "whole", tmp_path, "", "RankTrial", 17)
    ranks.run(train, 2, "stopped", tmp_path, "signal", "RankTrial", 17)
    before = results(tmp_path, "stopped")

    ranks.run(train, 2, "stopped", tmp_path, "", "RankTrial", 17)

    for first, second, whole in zip(before, results(tmp_path, "stopped"), results(tmp_path, "whole"), strict=True):
        assert first[0].reason == "preempted"
        assert first[1] + second[1] == whole[1]
        assert second[0].metrics == whole[0].metrics == {"mean_x": 8.0, "count": 17}
    assert before[0][0] == before[1][0]


def test_one_rank_may_ask_for_the_end_of_the_training(ranks: Ranks, tmp_path: Path) -> None:
    """A stop that one rank requests ends all ranks after the same batch, and the trial is completed."""
    ranks.run(train, 2, "job", tmp_path, "request")

    (chief, _), (other, _) = results(tmp_path, "job")
    assert chief == other
    assert chief.reason == "stopped"
    assert client.get_trial(1).state.name == "COMPLETED"


def test_the_chief_evaluates_the_whole_dataset(ranks: Ranks, tmp_path: Path) -> None:
    """evaluate_full_dataset() runs on the chief over the whole dataset."""
    ranks.run(train, 2, "job", tmp_path, "", "WholeTrial")

    (chief, _), (other, _) = results(tmp_path, "job")
    assert chief == other
    assert chief.metrics["mean_x"] == 9.5
