"""What a creator trainer promises, on workers of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sgd.creators import CREATORS, NUM_SAMPLES, data_creator, trained_alone, weights

from core_sdk import client
from core_sdk.sgd import PyTorchTrainer

IN_ORDER: dict[str, Any] = {"dataloader_config": {"shuffle": False}}


@pytest.mark.parametrize("num_replicas", [1, 2, 3])
def test_workers_train_what_a_plain_loop_trains(num_replicas: int) -> None:
    """Any number of workers trains what a plain loop trains, also with unequal batches, and reports it all."""
    model, losses = trained_alone(2, batch_size=8)

    with PyTorchTrainer(**CREATORS, num_replicas=num_replicas, batch_size=8, **IN_ORDER) as trainer:
        metrics = [trainer.train() for _ in range(2)]
        validated = trainer.validate()
        trained = trainer.get_model()
        trial = client.get_trial(trainer.context.info.trial.trial_id)

    # Processors add float32 numbers in orders of their own.
    assert [each["train_loss"] for each in metrics] == pytest.approx(losses, rel=1e-5)
    assert weights(trained) == pytest.approx(weights(model), abs=1e-6)
    features, target = data_creator({})[1][:]
    assert validated["validation_loss"] == pytest.approx(
        torch.nn.functional.mse_loss(model(features), target).item(), abs=1e-6
    )
    assert [each["batch_processed"] for each in metrics] == [NUM_SAMPLES] * 2
    assert [each["epoch"] for each in metrics] == [1, 2]
    reported = [(each.steps_completed, each.metrics["train_loss"]) for each in trial.iter_metrics("training")]
    assert reported == [(7, metrics[0]["train_loss"]), (14, metrics[1]["train_loss"])]
    assert [each.metrics for each in trial.iter_metrics("validation")] == [{**validated, "epoch": 2}]


def test_a_trainer_goes_on_from_a_file_of_another(tmp_path: Path) -> None:
    """A trainer continues exactly from another trainer's file, also with another number of workers."""
    with PyTorchTrainer(**CREATORS, num_replicas=2, batch_size=8, **IN_ORDER) as trainer:
        trainer.train()
        path = trainer.save(tmp_path / "saved.pt")
        expected = trainer.train()

    with PyTorchTrainer(**CREATORS, num_replicas=1, batch_size=8, **IN_ORDER) as trainer:
        trainer.restore(path)
        assert trainer.epoch == 1
        after_restore = trainer.train()
        trainer.load(path)
        after_load = trainer.train()

    for metrics in (after_restore, after_load):
        assert metrics["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)
        assert metrics["epoch"] == 2
    saved: dict[str, Any] = torch.load(path, weights_only=True)
    assert saved["objects"]["model_0"].keys() == {"weight", "bias"}


def test_a_pinned_state_stays() -> None:
    """A pinned checkpoint stays, while a newer one replaces all others."""
    with PyTorchTrainer(**CREATORS, num_replicas=1, batch_size=8) as trainer:
        trial = client.get_trial(trainer.context.info.trial.trial_id)
        trainer.train(max_retries=1)
        pinned = trial.list_checkpoints()[0]
        pinned.pin()
        for _ in range(2):
            trainer.train(max_retries=1)

        kept = {each.uuid for each in trial.list_checkpoints()}

    assert pinned.uuid in kept
    assert len(kept) == 2
