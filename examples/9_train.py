"""Step 9: a function on several workers. The program starts them, and gets the trained model back.

The names come from Ray Train. After Ctrl-C, `core-sdk trial pause` or the death of a worker, the training goes on at
its last checkpoint: `core-sdk trial resume ID`.

python examples/9_train.py --workers 2
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

import digits
from core_sdk import train
from core_sdk.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from core_sdk.train.torch import TorchTrainer

FILE = "training.pt"


def train_func(config: dict[str, Any]) -> None:
    """What each worker does."""
    torch.set_num_threads(1)
    train_digits, test_digits = digits.load()
    # The batch size is per worker.
    batch_size = config["batch_size"] // train.get_context().get_world_size()
    loader = train.torch.prepare_data_loader(
        DataLoader(train_digits.dataset(), batch_size=batch_size, shuffle=True, drop_last=True)
    )
    model = digits.make_model()
    prepared = train.torch.prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    first_epoch = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory, FILE), weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        first_epoch = state["epoch"]
    for epoch in range(first_epoch, config["num_epochs"]):
        torch.manual_seed(epoch)  # dropout draws the same after a resume
        loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = functional.cross_entropy(prepared(images), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        test_loss, accuracy = digits.evaluate(model, test_digits)
        model.train()
        metrics = {"loss": loss.item(), "test_loss": test_loss, "accuracy": accuracy, "epoch": epoch + 1}
        with tempfile.TemporaryDirectory() as temporary:
            reported = None
            if train.get_context().get_world_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
                torch.save({**state, "loader": loader.state_dict()}, Path(temporary, FILE))
                reported = Checkpoint.from_directory(temporary)
            train.report(metrics, checkpoint=reported)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="0: this process alone")
    parser.add_argument("--engine", choices=["local", "ray"], help="by default Ray, if this program is connected to it")
    parser.add_argument("--epochs", type=int, default=14)
    arguments = parser.parse_args()
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"batch_size": 32, "learning_rate": 2e-3, "num_epochs": arguments.epochs},
        scaling_config=ScalingConfig(num_workers=arguments.workers, engine=arguments.engine),
        run_config=RunConfig(name="digits-train", failure_config=FailureConfig(max_failures=2)),
    )
    result = trainer.fit()
    if result.is_stopped or result.checkpoint is None:
        print(f"trial {result.trial_id} is paused")
        return
    with result.checkpoint.as_directory() as directory:
        state = torch.load(Path(directory, FILE), weights_only=True)
    model = digits.make_model()
    model.load_state_dict(state["model"])
    _, accuracy = digits.evaluate(model, digits.load()[1])
    print(f"accuracy {accuracy:.3f} on the test digits (expected: {digits.EXPECTED_ACCURACY} or more)")


if __name__ == "__main__":
    main()
