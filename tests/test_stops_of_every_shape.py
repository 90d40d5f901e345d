"""Every shape of training hears every kind of stop within two reports. The callbacks' are in `tests/frameworks`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytorch.trials import LineTrial
from sgd.creators import CREATORS
from stopping import KINDS, MOST_STEPS, Kind, Stop

from core_sdk import core, pytorch, train
from core_sdk.sgd import PyTorchTrainer
from core_sdk.train import Checkpoint, ScalingConfig, TorchTrainer

Shape = Callable[[Stop, bool, Path], None]


def script(stop: Stop, has_saved: bool, directory: Path) -> None:
    with core.init() as context:
        for step in range(1, MOST_STEPS):
            should_stop = context.preempt.should_preempt()
            if should_stop:
                break
            stop.step(context)
            context.train.report_training_metrics(step, {"loss": 1.0})
            if has_saved and step == 2:
                with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                    (path / "state").touch()


def trial(stop: Stop, has_saved: bool, directory: Path) -> None:
    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            stop.step(self.context.core_context)
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytorch.init() as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=pytorch.Batch(MOST_STEPS),
            reporting_period=pytorch.Batch(1),
            checkpoint_period=pytorch.Batch(2) if has_saved else None,
        )


def function(stop: Stop, has_saved: bool, directory: Path) -> None:
    def train_func() -> None:
        for step in range(1, MOST_STEPS):
            stop.step(train.get_context().core_context)
            (directory / "state").touch()
            checkpoint = Checkpoint.from_directory(directory) if has_saved and step == 2 else None
            train.report({"loss": 1.0}, checkpoint=checkpoint)

    assert TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=0)).fit().is_stopped


def function_that_asks(stop: Stop, has_saved: bool, directory: Path) -> None:
    def train_func() -> None:
        while not train.should_preempt():
            stop.step(train.get_context().core_context)
            (directory / "state").touch()
            checkpoint = Checkpoint.from_directory(directory) if has_saved and stop.num_steps == 2 else None
            train.report({"loss": 1.0}, checkpoint=checkpoint)

    assert TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=0)).fit().is_stopped


def passes(stop: Stop, has_saved: bool, directory: Path) -> None:
    """A program that leads a training, and asks only where it would die of the signal otherwise."""
    with contextlib.suppress(SystemExit), PyTorchTrainer(**CREATORS) as trainer:
        while not (stop.kind == "SIGTERM" and trainer.context.preempt.should_preempt()):
            stop.step(trainer.context)
            trainer.train()
            if has_saved and trainer.epoch == 2:
                trainer.save()


@pytest.mark.parametrize("has_saved", [False, True], ids=["nothing saved", "saved"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape",
    [
        script,
        trial,
        function,
        function_that_asks,
        passes,
    ],
)
def test_a_stop_ends_every_shape_within_two_reports(
    shape: Shape, kind: Kind, has_saved: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop ends every kind of training within two reports in the right state, and losses are said."""
    stop, directory = Stop(kind), tmp_path / "files"
    directory.mkdir()

    shape(stop, has_saved, directory)

    saves_itself = shape is trial or (shape is passes and kind != "SIGTERM")
    stop.check(has_checkpoint=has_saved or saves_itself)
    if shape is function and kind != "searcher":
        told = "goes on from step 2" if has_saved else "begins from nothing"
        assert f"in a report without a checkpoint: a resume {told}, and what was trained since is lost" in caplog.text
