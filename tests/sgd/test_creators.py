"""What the creators, functions and options of a trainer may be."""

from __future__ import annotations

import copy
import functools
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from sgd.creators import CREATORS, NUM_SAMPLES, NUM_VALIDATED, data_creator, model_creator, optimizer_creator
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, Dataset, TensorDataset

from core_sdk.errors import (
    MissingDependencyError,
    NotPicklableError,
    StateMismatchError,
    WorkerError,
    WorkerFailedError,
)
from core_sdk.loop import ShardedDataset
from core_sdk.sgd import PyTorchTrainer, Runner


def two_models(config: dict[str, Any]) -> list[nn.Module]:
    return [model_creator(config), nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1))]


def two_optimizers(models: list[nn.Module], config: dict[str, Any]) -> tuple[torch.optim.Optimizer, ...]:
    return tuple(torch.optim.SGD(model.parameters(), lr=0.1) for model in models)


def two_schedulers(optimizers: list[Any], config: dict[str, Any]) -> list[Any]:
    return [StepLR(optimizer, step_size=1, gamma=0.5) for optimizer in optimizers]


def train_two(config: Any, models: Any, batches: Any, criterion: Any, optimizers: Any, schedulers: Any) -> Any:
    """Returns a loss of each model, as the guide's train functions return them: a dict in a dict, of tensors."""
    assert len(batches) == 5
    for features, target in batches:
        losses = [criterion(model(features), target) for model in models]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for scheduler in schedulers:
        scheduler.step()
    return {f"model_{index}": {"last_loss": loss.detach()} for index, loss in enumerate(losses)}


def count(config: Any, models: Any, batches: Any, criterion: Any, schedulers: Any) -> dict[str, float]:
    assert not any(model.training for model in models)
    sizes = [len(target) for _, target in batches]
    return {"mean_size": sum(sizes) / len(sizes), "lr": schedulers[0].get_last_lr()[0]}


def test_several_models_are_trained_by_functions_of_ones_own() -> None:
    """Custom functions train several models, given as lists; their metrics may be in groups."""
    with PyTorchTrainer(
        two_models,
        data_creator,
        two_optimizers,
        nn.MSELoss,
        two_schedulers,
        train_function=train_two,
        validation_function=count,
        num_replicas=2,
        batch_size=10,
    ) as trainer:
        trained = trainer.train()
        validated = trainer.validate()
        models = trainer.get_model()
        buffers = trainer.apply_all_workers(
            lambda runner: dict(runner.models[1].named_buffers())["1.running_mean"].item()
        )

    assert trained["model_0"]["last_loss"] > 0
    assert trained["batch_processed"] == NUM_SAMPLES
    assert validated["lr"] == 0.05
    assert [type(model) for model in models] == [nn.Linear, nn.Sequential]
    assert models[1][1].running_mean.item() == buffers[0] == buffers[1]


def one_scheduler(optimizer: Any, config: dict[str, Any]) -> StepLR:
    return StepLR(optimizer, step_size=1, gamma=0.5)


def learning_rate(runner: Runner) -> float:
    rate: float = runner.optimizers[0].param_groups[0]["lr"]
    return rate


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [
        ("batch", 0.1 * 0.5**7),
        ("epoch", 0.05),
        (None, 0.1),
    ],
)
def test_the_built_in_pass_steps_schedulers_as_often_as_it_is_told(frequency: Any, expected: float) -> None:
    """The built-in pass steps schedulers after each batch, after each pass, or never, as scheduler_step_freq says."""
    arguments = {**CREATORS, "scheduler_creator": one_scheduler, "scheduler_step_freq": frequency}
    with PyTorchTrainer(**arguments, batch_size=8) as trainer:
        trainer.train()

        assert trainer.apply_all_workers(learning_rate) == [pytest.approx(expected)]


def plateau(optimizer: Any, config: dict[str, Any]) -> ReduceLROnPlateau:
    return ReduceLROnPlateau(optimizer, patience=0, factor=0.1)


def note_hook(runner: Runner) -> None:
    runner.config["was_called_before_the_creators"] = not hasattr(runner, "models")


def by_config(config: dict[str, Any]) -> nn.Module:
    assert config["was_called_before_the_creators"]
    return nn.L1Loss()


def test_workers_are_steered_from_the_program() -> None:
    """A scheduler that needs a metric, a hook on each worker, a loss by the configuration, and no validation."""
    with PyTorchTrainer(
        model_creator,
        data_creator,
        optimizer_creator,
        by_config,
        plateau,
        validation_function=False,
        initialization_hook=note_hook,
        config={"lr": 0.5},
        num_replicas=2,
        scheduler_step_freq=None,
    ) as trainer:
        for metric in (1.0, 2.0):
            trainer.update_scheduler(metric)

        assert trainer.validate() == {}
        assert trainer.apply_all_workers(learning_rate) == [pytest.approx(0.05)] * 2
        assert trainer.apply_all_workers(lambda runner: (runner.rank, runner.world_size)) == [(0, 2), (1, 2)]


def outputs_of(runner: Any) -> torch.Tensor:
    return runner.models[0](torch.linspace(0.1, 0.9, 40).reshape(10, 4)).detach()  # type: ignore[no-any-return]


def computes_with_its_own_weights(runner: Any) -> bool:
    """Returns whether a copy of the model, such as one of averaged weights, uses its own weights."""
    twin = copy.deepcopy(runner.models[0])
    for parameter in twin.parameters():
        torch.nn.init.zeros_(parameter)
    return not twin(torch.ones(1, 4)).any()


def test_half_precision_trains_too(caplog: pytest.LogCaptureFixture) -> None:
    """use_fp16 trains by torch.amp, and one warning names the arguments of Apex that have no effect."""
    with (
        caplog.at_level(logging.WARNING, "core_sdk.sgd"),
        PyTorchTrainer(
            **CREATORS, num_replicas=2, batch_size=8, use_fp16=True, apex_args={"opt_level": "O3", "num_losses": 2}
        ) as trainer,
    ):
        losses = [trainer.train()["train_loss"] for _ in range(4)]
        (outputs, _) = trainer.apply_all_workers(outputs_of)
        (is_independent, _) = trainer.apply_all_workers(computes_with_its_own_weights)

    assert losses[-1] < losses[0] / 10
    assert outputs.dtype == torch.float32
    assert torch.equal(outputs, outputs.bfloat16().float())
    assert is_independent
    (warning,) = caplog.messages
    assert "torch.amp has taken the place of Apex" in warning
    assert "opt_level, num_losses" in warning


def classes(config: dict[str, Any]) -> tuple[Dataset[Any], Dataset[Any]]:
    train, test = data_creator(config)
    return tuple(TensorDataset(each[:][0], (each[:][1] > 0).long().squeeze(1)) for each in (train, test))  # type: ignore[return-value]


def two_outputs(config: dict[str, Any]) -> nn.Module:
    return nn.Linear(4, 2)


def test_the_accuracy_of_classes_is_measured_over_all_workers() -> None:
    """The accuracy is computed over all samples of all workers, also if a worker has none in the last batch."""
    arguments = {**CREATORS, "model_creator": two_outputs, "data_creator": classes, "loss_creator": nn.CrossEntropyLoss}
    with PyTorchTrainer(**arguments, num_replicas=2, batch_size=10) as trainer:
        for _ in range(5):
            trainer.train()
        metrics = trainer.validate()
        model = trainer.get_model()

    features, target = classes({})[1][:]
    num_right = int((model(features).argmax(dim=1) == target).sum())
    assert metrics["mean_accuracy"] == pytest.approx(num_right / NUM_VALIDATED)
    assert num_right > 8


def in_shards(config: dict[str, Any]) -> list[ShardedDataset]:
    """Returns datasets in shards whose lengths are not known before they have been read."""
    datasets: Any = data_creator(config)
    return [
        ShardedDataset([range(7), range(7, len(each))], functools.partial(map, each.__getitem__)) for each in datasets
    ]


def test_data_in_shards_train_as_a_dataset_with_a_length_does() -> None:
    """Divided among the workers, from the first pass on, in which their lengths are learnt."""
    models, losses = [], []
    for creator, num_replicas in ((data_creator, 1), (in_shards, 2)):
        arguments = {**CREATORS, "data_creator": creator, "dataloader_config": {"shuffle": False}}
        with PyTorchTrainer(**arguments, num_replicas=num_replicas, batch_size=8) as trainer:
            assert [trainer.train()["batch_processed"] for _ in range(2)] == [NUM_SAMPLES] * 2
            losses.append(trainer.validate()["validation_loss"])
            models.append(trainer.get_model())

    assert losses[0] == pytest.approx(losses[1])
    assert torch.allclose(models[0].weight, models[1].weight)


def test_what_creators_get_wrong_is_named() -> None:
    """A wrong return value of a creator is named in the error."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"model_creator": lambda config: 1}, r"model_creator\(\) returned a int"),
        (
            {"data_creator": lambda config: DataLoader(data_creator(config)[0])},
            r"returned a DataLoader; it must return the dataset",
        ),
        ({"data_creator": lambda config: ()}, r"data_creator\(\) returned 0 datasets"),
        ({"data_creator": lambda config: iter(())}, r"data_creator\(\) returned a tuple_iterator; it must"),
        ({"optimizer_creator": lambda model, config: None}, r"optimizer_creator\(\) returned a NoneType"),
        ({"scheduler_creator": plateau}, r"ReduceLROnPlateau.*scheduler_step_freq='manual'"),
    ]
    for arguments, message in wrong:
        with pytest.raises(WorkerFailedError, match=message):
            PyTorchTrainer(**{**CREATORS, **arguments})


def train_wrongly(config: Any, model: Any, batches: Any, criterion: Any, optimizer: Any) -> Any:
    """Worker 0 trains on, where worker 1 raises."""
    rank = torch.distributed.get_rank()
    for features, target in batches:
        if config["wrong"] == "raise" and rank == 1 and batches.num_given == 3:
            raise RuntimeError("out of luck")
        optimizer.zero_grad()
        criterion(model(features), target).backward()
        optimizer.step()
    texts = {"name": {"inner": "a"}}
    differing = {"loss": 0} if rank else {"loss": 0, "other": 1}
    return {"text": texts, "key": differing, "none": None}.get(config["wrong"], {"loss": 1})


def become(wrong: str) -> Any:
    return lambda runner: runner.config.update(wrong=wrong)


def test_what_functions_get_wrong_is_named() -> None:
    """After a failing or wrong train_function, workers restart from the last good state, until a shutdown."""
    with PyTorchTrainer(**CREATORS, train_function=train_wrongly, config={"wrong": ""}, num_replicas=2) as trainer:
        trainer.train(max_retries=1)
        for wrong, error, message in (
            ("raise", WorkerFailedError, "RuntimeError: out of luck"),
            ("none", WorkerFailedError, r"train_function\(\) returned a NoneType; it must return a dict"),
            ("text", WorkerFailedError, r"returned a str as metric 'name\.inner'; a metric is a number"),
            ("key", ValueError, "different metrics on different workers: only some have other"),
        ):
            trainer.apply_all_workers(become(wrong))
            trainer.save()
            with pytest.raises(error, match=message):
                trainer.train(max_retries=2)
        assert trainer.epoch == 2, "the last one was trained"

    for call in (trainer.train, trainer.validate, trainer.get_model):
        with pytest.raises(WorkerError, match=r"cannot .*\(\): the workers .* were ended by shutdown\(\)"):
            call()
    trainer.shutdown()


def test_after_an_error_without_a_state_the_trainer_waits_for_one(tmp_path: Path) -> None:
    """After an error without a kept state, train() is refused until a state is restored."""
    with PyTorchTrainer(**CREATORS, train_function=train_wrongly, config={"wrong": "raise"}, num_replicas=2) as trainer:
        saved = trainer.save(tmp_path / "saved")
        with pytest.raises(WorkerFailedError, match="out of luck"):
            trainer.train()
        with pytest.raises(WorkerError, match="there is no state to go on from"):
            trainer.train()
        trainer.restore(saved)
        assert trainer.apply_all_workers(lambda runner: runner.epoch) == [0, 0]


def test_a_file_of_something_else_is_not_restored(tmp_path: Path) -> None:
    """A file that is incomplete or of other models is refused, and the workers keep their state."""
    with PyTorchTrainer(**CREATORS) as trainer:
        saved = Path(trainer.save(tmp_path / "saved"))
        saved.with_name("part").write_bytes(saved.read_bytes()[:-100])
        trainer.train()
        with pytest.raises(ValueError, match=r"part is no file of save\(\), or a part of one is missing"):
            trainer.restore(tmp_path / "part")
        with pytest.raises(ValueError, match=r"part is no file of save\(\)"):
            trainer.train(max_retries=1, checkpoint=tmp_path / "part")
        assert trainer.train()["epoch"] == 2
    with (
        PyTorchTrainer(**{**CREATORS, "model_creator": two_outputs}) as other,
        pytest.raises(StateMismatchError, match="the checkpoint does not fit 'model_0' of the script"),
    ):
        other.restore(saved)


def test_wrong_arguments_are_refused_before_anything_starts() -> None:
    """Wrong arguments are refused before any worker starts, with an error that names them."""
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"num_replicas": 0}, ValueError, "num_replicas is 0"),
        ({"num_replicas": 20}, ValueError, "batch_size is 16, and counts the samples of all 20 replicas"),
        ({"model_creator": None}, TypeError, "model_creator is a NoneType; it must be a function"),
        ({"loss_creator": nn.MSELoss()}, TypeError, "loss_creator is a loss; give its class"),
        ({"dataloader_config": {"batch_sampler": 1}}, ValueError, "dataloader_config has batch_sampler"),
        ({"scheduler_step_freq": "pass"}, ValueError, "scheduler_step_freq is 'pass'"),
        ({"engine": "spark"}, ValueError, "engine is 'spark'"),
        ({"use_gpu": True, "num_replicas": 9}, WorkerError, "the workers ask for 9 GPUs"),
        ({"engine": "ray"}, MissingDependencyError, r'pip install "ray'),
        (
            {"config": {"lock": threading.Lock()}},
            NotPicklableError,
            r"what the trainer was given cannot be pickled \('config'\): TypeError: cannot pickle '_thread.lock'",
        ),
    ]
    for arguments, kind, message in wrong:
        with pytest.raises(kind, match=message):
            PyTorchTrainer(**{**CREATORS, **arguments})
