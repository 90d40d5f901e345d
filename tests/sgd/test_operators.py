"""What RaySGD's operators promise on workers of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from sgd.creators import (
    CREATORS,
    NUM_SAMPLES,
    data_creator,
    model_creator,
    optimizer_creator,
    trained_alone,
    weights,
)
from torch import nn
from torch.utils.data import DataLoader

from core_sdk.sgd import PyTorchTrainer, TorchTrainer, TrainingOperator


def loaders_creator(config: dict[str, Any]) -> tuple[DataLoader[Any], DataLoader[Any]]:
    train, validation = data_creator(config)
    return DataLoader(train, config["batch_size"]), DataLoader(validation, config["batch_size"])


class Registering(TrainingOperator):
    """An operator that makes all itself, and keeps its count of batches in checkpoints."""

    def setup(self, config: dict[str, Any]) -> None:
        model = model_creator(config)
        optimizer = optimizer_creator(model, config)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        self.model, self.optimizer, self.criterion, self.scheduler = self.register(
            models=model, optimizers=optimizer, criterion=nn.MSELoss(), schedulers=scheduler
        )
        train, validation = loaders_creator(config)
        self.register_data(train_loader=train, validation_loader=validation)

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> Mapping[str, Any]:
        features, target = batch
        loss = self.criterion(self.model(features), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        told = {name: batch_info[name] for name in ("epoch_idx", "global_step", "own")}
        return {"loss": loss.detach(), "num_samples": len(target), **told}

    def state_dict(self) -> Any:
        return {"global_step": self.global_step}

    def load_state_dict(self, state_dict: Any) -> None:
        self.global_step = state_dict["global_step"]


CREATED: dict[str, Any] = {**CREATORS, "data_creator": loaders_creator}


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_torch_trainer_trains_what_a_plain_loop_trains(num_workers: int) -> None:
    """A TorchTrainer trains what a plain loop trains, from creators or from an operator that is made of them."""
    model, losses = trained_alone(1, batch_size=8)
    operator = TrainingOperator.from_creators(**CREATED)
    config = {"batch_size": 8 // num_workers}

    for given in (CREATED, {"training_operator_cls": operator}):
        with TorchTrainer(**given, config=config, num_workers=num_workers) as trainer:
            metrics = trainer.train()
            trained = trainer.get_model()
            validated = trainer.validate()

        assert metrics["train_loss"] == pytest.approx(losses[0], rel=1e-5)
        assert (metrics["num_samples"], metrics["batch_count"], metrics["epoch"]) == (NUM_SAMPLES, 7, 1)
        assert weights(trained) == pytest.approx(weights(model), abs=1e-6)
        features, target = data_creator({})[1][:]
        expected = nn.functional.mse_loss(model(features), target).item()
        assert validated["val_loss"] == pytest.approx(expected, abs=1e-6)


def test_an_operator_registers_what_it_trains(tmp_path: Path) -> None:
    """A registered operator gets epoch, step and info, its schedulers step, and a checkpoint has its state."""
    config = {"batch_size": 4}
    with TorchTrainer(
        training_operator_cls=Registering, config=config, num_workers=2, scheduler_step_freq="epoch"
    ) as trainer:
        first = trainer.train(info={"own": 3}, max_retries=1)
        short = trainer.train(num_steps=2, info={"own": 4})
        path = trainer.save(tmp_path / "saved.pt")
        after = trainer.train(info={"own": 5})
        trainer.load(path)
        again = trainer.train(info={"own": 5})
        found = trainer.apply_all_operators(lambda one: (one.world_rank, one.global_step, one.scheduler.get_last_lr()))
        model = trainer.get_model()

    assert (first["batch_count"], first["own"], first["last_global_step"]) == (7, 3, 6)
    assert (short["batch_count"], short["num_samples"], short["own"], short["epoch_idx"]) == (2, 16, 4, 1)
    assert (after["loss"], after["global_step"]) == (again["loss"], again["global_step"])
    assert found == [(0, 14, [0.0125]), (1, 14, [0.0125])]
    assert isinstance(model, nn.Linear)


def test_a_pass_ends_after_so_many_batches(tmp_path: Path) -> None:
    """num_steps ends a call after that number of batches; the next goes on with the batch after them, over epochs."""
    with PyTorchTrainer(**CREATORS, num_replicas=2, batch_size=8) as trainer:
        passes = [trainer.train(num_steps=2)]
        path = trainer.save(tmp_path / "saved.pt")
        passes += [trainer.train(), trainer.train(num_steps=9, max_retries=1)]
        trainer.restore(path)
        again = trainer.train()
        validated = trainer.validate(num_steps=1)

    assert [each["batch_processed"] for each in passes] == [16, NUM_SAMPLES - 16, NUM_SAMPLES + 16]
    assert [each["epoch"] for each in passes] == [0, 1, 2]
    assert (again["train_loss"], again["epoch"]) == (passes[1]["train_loss"], 1)
    assert validated.keys() == {"validation_loss", "mean_loss"}


class Counting(TrainingOperator):
    """Counts its samples itself, in tens."""

    def train_epoch(self, iterator: Any, info: dict[str, Any]) -> Mapping[str, Any]:
        return {**super().train_epoch(iterator, info), "num_samples": 10}


def test_calls_of_the_predecessor_have_its_arguments() -> None:
    """A function for all workers takes no argument, a model may be asked for on the CPU, and own counts are summed."""
    created: dict[str, Any] = {**CREATED, "training_operator_cls": Counting, "config": {"batch_size": 4}}
    with TorchTrainer(**created, num_workers=2) as trainer:
        metrics = trainer.train(num_steps=3)
        counts = trainer.apply_all_workers(lambda: torch.distributed.get_world_size())
        model = trainer.get_model(to_cpu=True)

    assert (metrics["num_samples"], metrics["batch_processed"]) == (20, 24)
    assert counts == [2, 2]
    assert isinstance(model, nn.Linear)


def test_errors_are_caught_as_they_were() -> None:
    """What the creators do not allow is a `ValueError`, and a trainer without workers raises a `RuntimeError`."""

    def pair(config: dict[str, Any]) -> list[nn.Module]:
        return [model_creator(config), model_creator(config)]

    def for_pair(models: list[nn.Module], config: dict[str, Any]) -> torch.optim.Optimizer:
        return optimizer_creator(models[0], config)

    creators = {**CREATORS, "model_creator": pair, "optimizer_creator": for_pair}
    with PyTorchTrainer(**creators | {"data_creator": lambda config: data_creator(config)[0]}) as trainer:
        with pytest.raises(ValueError, match=r"train_function=.*\(config, models, batches, criterion, optimizers\)"):
            trainer.train()
        with pytest.raises(ValueError, match="no data to validate on"):
            trainer.validate()
        assert trainer.num_workers == 1
    with pytest.raises(RuntimeError, match="were ended by shutdown"):
        trainer.train()
    with pytest.raises(ValueError, match="scheduler_step_freq is None"):
        TorchTrainer(training_operator_cls=Registering, config={"batch_size": 4}, scheduler_step_freq=None)


class Forgetful(TrainingOperator):
    """Registers nothing."""


def test_what_cannot_be_trained_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Impossible arguments are refused with what to do instead; those without an effect are named in a warning."""
    with pytest.raises(TypeError, match="it must be a class of TrainingOperator"):
        TorchTrainer(training_operator_cls=nn.Linear)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the workers always divide each batch"):
        TorchTrainer(**CREATED, wrap_ddp=False)
    with pytest.raises(ValueError, match=r"must call self\.register\(…\) and self\.register_data\(…\)"):
        TorchTrainer(training_operator_cls=Forgetful)
    with TorchTrainer(**CREATED, config={"batch_size": 4}, use_tqdm=True) as trainer:
        with pytest.raises(ValueError, match=r"apply_all_operators\(\) asks each"):
            trainer.train(reduce_results=False)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="num_steps is 0; it must be at least 1"):
            trainer.train(num_steps=0)
    assert "these arguments of a TorchTrainer change nothing here: use_tqdm" in caplog.text


class Drawing(Registering):
    """An operator whose batches and whose state both draw random numbers."""

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> Mapping[str, Any]:
        return {**super().train_batch(batch, batch_info), "drawn": torch.rand(()).item()}

    def state_dict(self) -> Any:
        torch.rand(3)
        return super().state_dict()


def test_a_save_leaves_no_trace_in_the_generators(tmp_path: Path) -> None:
    """Numbers drawn during a save change neither those of the next pass nor those after a load."""
    drawn = []
    for saves in (False, True):
        with TorchTrainer(training_operator_cls=Drawing, config={"batch_size": 8}, seed=1) as trainer:
            trainer.train(info={"own": 1})
            if saves:
                trainer.save(str(tmp_path / "state"))
            drawn.append(trainer.train(info={"own": 1})["drawn"])
            if saves:
                trainer.load(str(tmp_path / "state"))
                drawn.append(trainer.train(info={"own": 1})["drawn"])

    assert drawn[0] == drawn[1] == drawn[2]
