"""The same training with Lightning, on one rank or on several.

python -m launch.torch_distributed --nproc-per-node=2 -- python examples/7_lightning.py
"""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import digits
from core_sdk import core, loop
from core_sdk.integrations.lightning import CoreSDKCallback


class DigitsModule(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = digits.make_model()

    def training_step(self, batch: list[torch.Tensor], batch_index: int) -> torch.Tensor:
        images, labels = batch
        loss = functional.cross_entropy(self.model(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_index: int) -> None:
        images, labels = batch
        self.log("accuracy", (self.model(images).argmax(dim=1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    train_digits, test_digits = digits.load()
    train_loader = DataLoader(TensorDataset(*train_digits), batch_size=32, shuffle=True)
    train_data = loop.resumable(train_loader, distributed=core_context.distributed)
    test_data = DataLoader(TensorDataset(*test_digits), batch_size=len(test_digits.labels))

    callback = CoreSDKCallback(core_context)
    trainer = Trainer(
        devices=core_context.distributed.local_size,
        max_epochs=args.epochs,
        log_every_n_steps=5,
        callbacks=[callback],
        enable_progress_bar=False,
    )
    trainer.fit(DigitsModule(), train_data, test_data, ckpt_path=callback.latest_checkpoint())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_arguments()
    distributed_context = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed_context, name="digits-lightning") as core_context:
        main(args, core_context)
