"""Step 8: transfer learning. A model that has learned the digits 0 to 4 learns 5 to 9 from 25 images.

For ten epochs only a new last layer learns; then the pretrained layers are tuned, too. The model is that of a
checkpoint of `8_trial.py --classes 0 1 2 3 4`, whose id `core-sdk checkpoint list` shows.

python examples/8_transfer.py STORAGE_ID
"""

import argparse
import logging
import tempfile
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

import digits
from core_sdk import LOG_FORMAT, pytorch
from core_sdk.experimental import client

CLASSES = range(5, 10)
NUM_IMAGES = 25
EXPECTED_ACCURACY = 0.85
"""From 25 images alone, without a pretrained model, three quarters are right."""


class TransferTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        torch.set_num_threads(1)
        self.context = context
        self.frozen_epochs: int = context.get_hparam("frozen_epochs")
        pretrained = load_pretrained(context.get_hparam("pretrained"))
        # Everything but the last layer, which has an output for each of the other digits.
        self.body = context.wrap_model(pretrained[:-1])
        last = cast(nn.Linear, pretrained[-1])
        self.head = context.wrap_model(nn.Linear(last.in_features, len(CLASSES)))
        self.body_optimizer = context.wrap_optimizer(torch.optim.Adam(self.body.parameters(), lr=3e-4))
        self.head_optimizer = context.wrap_optimizer(torch.optim.Adam(self.head.parameters(), lr=3e-3))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        train_digits, _ = digits.load()
        images, labels = train_digits.of_classes(CLASSES)
        dataset = digits.Digits(images[:NUM_IMAGES], labels[:NUM_IMAGES]).dataset()
        return pytorch.DataLoader(dataset, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        _, test_digits = digits.load()
        return pytorch.DataLoader(test_digits.of_classes(CLASSES).dataset(), batch_size=64)

    def train_batch(self, batch: list[Tensor], epoch_idx: int, batch_idx: int) -> dict[str, Tensor]:
        images, labels = batch
        is_frozen = epoch_idx < self.frozen_epochs
        with torch.set_grad_enabled(not is_frozen):
            features = self.body(images)
        loss = functional.cross_entropy(self.head(features), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.head_optimizer)
        if not is_frozen:
            self.context.step_optimizer(self.body_optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: list[Tensor]) -> dict[str, Any]:
        images, labels = batch
        outputs = self.head(self.body(images))
        return {"accuracy": (outputs.argmax(dim=1) == labels).float().mean()}


def load_pretrained(storage_id: str) -> nn.Sequential:
    """The model of a checkpoint of `8_trial.py`, built by the code that lies in the checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        path = client.get_checkpoint(storage_id).download(f"{directory}/checkpoint")
        trial: Any = pytorch.load_trial_from_checkpoint_path(path)
    return cast(nn.Sequential, trial.model)


def main(args: argparse.Namespace) -> None:
    hparams = {"pretrained": args.pretrained, "global_batch_size": 20, "frozen_epochs": 10}
    searcher = {"metric": "accuracy", "smaller_is_better": False}
    with pytorch.init(hparams=hparams, exp_conf={"searcher": searcher}, name="digits-transfer") as train_context:
        trainer = pytorch.Trainer(TransferTrial(train_context), train_context)
        result = trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(5),
            checkpoint_period=pytorch.Epoch(5),
            reporting_period=pytorch.Epoch(1),
        )
    if "accuracy" in result.metrics:
        accuracy = result.metrics["accuracy"]
        print(f"accuracy {accuracy:.3f} on the test images (expected: {EXPECTED_ACCURACY} or more)")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pretrained", nargs="?", metavar="STORAGE_ID", help="a checkpoint of 8_trial.py")
    parser.add_argument("--epochs", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    main(parse_arguments())
