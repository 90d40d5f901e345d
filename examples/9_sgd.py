"""Step 9: creators of a model, its data and its optimizer, and a program that leads them pass by pass.

The names come from RaySGD. If a worker dies, its pass begins again. After Ctrl-C or the death of the program,
`core-sdk trial resume ID` goes on at the last pass. `--search` trains eight trials instead, and shows the best.

python examples/9_sgd.py --replicas 2
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import digits
from core_sdk.sgd import PyTorchTrainer, tune


def model_creator(config: dict[str, Any]) -> nn.Module:
    torch.set_num_threads(1)
    return digits.make_model(config["num_filters"])


def data_creator(config: dict[str, Any]) -> tuple[Dataset[Any], Dataset[Any]]:
    """What to train on, and what to validate on."""
    train_digits, test_digits = digits.load()
    return train_digits.dataset(), test_digits.dataset()


def optimizer_creator(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=config["learning_rate"])


def scheduler_creator(optimizer: torch.optim.Optimizer, config: dict[str, Any]) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--engine", choices=["local", "ray"], help="by default Ray, if this program is connected to it")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--search", action="store_true")
    arguments = parser.parse_args()
    trainer_arguments: dict[str, Any] = {
        "model_creator": model_creator,
        "data_creator": data_creator,
        "optimizer_creator": optimizer_creator,
        "loss_creator": nn.CrossEntropyLoss,
        "config": {"learning_rate": 2e-3, "num_filters": 16},
        "num_replicas": arguments.replicas,
        "batch_size": 32,
        "engine": arguments.engine,
    }
    if arguments.search:
        search(trainer_arguments, arguments.epochs)
    else:
        train(trainer_arguments, arguments.epochs)


def train(trainer_arguments: dict[str, Any], num_epochs: int) -> None:
    with PyTorchTrainer(
        **trainer_arguments, scheduler_creator=scheduler_creator, scheduler_step_freq=None, name="digits-sgd"
    ) as trainer:
        while trainer.epoch < num_epochs:
            trained = trainer.train(max_retries=2)
            validated = trainer.validate()
            trainer.update_scheduler(validated["validation_loss"])
            print(
                f"epoch {trainer.epoch}: loss {trained['train_loss']:.3f}, accuracy {validated['mean_accuracy']:.3f}",
                flush=True,
            )
            if trainer.context.preempt.should_preempt():
                trainer.save()
                print("the trial is paused")
                return
        model = trainer.get_model()
        with tempfile.TemporaryDirectory() as directory:
            path = trainer.save(Path(directory, "trained.pt"))
            print(f"saved {Path(path).stat().st_size} bytes, from which another trainer can go on")
    _, accuracy = digits.evaluate(model, digits.load()[1])
    print(f"accuracy {accuracy:.3f} on the test digits (expected: {digits.EXPECTED_ACCURACY} or more)")


def search(trainer_arguments: dict[str, Any], num_epochs: int) -> None:
    experiment = tune(
        **trainer_arguments,
        hyperparameters={
            "learning_rate": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
            "num_filters": {"type": "int", "minval": 4, "maxval": 24},
        },
        searcher={
            "name": "asha",
            "metric": "mean_accuracy",
            "smaller_is_better": False,
            "time_metric": "epoch",
            "max_time": num_epochs,
            "max_trials": 8,
            "num_rungs": 2,
            "divisor": 4,
        },
        num_passes=num_epochs,
        name="digits-sgd-search",
    )
    experiment.wait()
    best = experiment.top_checkpoint()
    print(f"the best trial is {best.get_trial().id}, with {best.get_trial().hparams}")


if __name__ == "__main__":
    main()
