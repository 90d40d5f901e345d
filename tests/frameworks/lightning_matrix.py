"""Stops Lightning's Trainer after each of 12 batches, in many configurations: `lightning_matrix.py sample|all`."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import torch
from frameworks.stop_matrix import Train, ask_to_stop, compare
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, Sampler, TensorDataset
from torchmetrics import MeanMetric

from core_sdk import client, core, loop
from core_sdk.integrations.lightning import CoreSDKCallback

BATCHES_PER_EPOCH = 4
NUM_BATCHES = 12
SCORES = [3.0, 1.0, 2.0, 0.5]


class Model(LightningModule):  # type: ignore[misc]
    def __init__(self, schedule: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        self.error = MeanMetric()
        self.schedule = schedule

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (x,) = batch
        loss = (self.layers(x) - x.sum(dim=1, keepdim=True)).square().mean()
        self.error(loss.detach() ** 0.5)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("error", self.error, on_step=False, on_epoch=True)
        self.log("worst", loss, on_step=False, on_epoch=True, reduce_fx=torch.max)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        (x,) = batch
        self.log("distance", (self.layers(x) - x.sum(dim=1, keepdim=True)).square().mean())
        self.log("score", SCORES[self.current_epoch % len(SCORES)])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        if self.schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": self.schedule(optimizer)}


class Stops(Callback):  # type: ignore[misc]
    def __init__(self, context: core.Context, stop_at: int | None) -> None:
        self._context = context
        self._stop_at = stop_at

    def on_train_batch_end(self, trainer: Trainer, *others: Any) -> None:
        if trainer.fit_loop.total_batch_idx + 1 == self._stop_at:
            ask_to_stop(self._context)


def by_steps(optimizer: Any) -> Any:
    return {"scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), "interval": "step"}


def by_epochs(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def on_plateau(optimizer: Any) -> Any:
    return {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0), "monitor": "score"}


def samples() -> torch.Tensor:
    return torch.arange(48).reshape(16, 3) / 48


def exact() -> Any:
    return loop.resumable(DataLoader(TensorDataset(samples()), batch_size=4, shuffle=True), seed=1)


def in_shards() -> Any:
    dataset = loop.ShardedDataset(range(4), read_shard, shuffle=True)
    return loop.resumable(DataLoader(dataset, batch_size=4), seed=1)


def read_shard(shard: int) -> Any:
    for sample in samples()[4 * shard : 4 * shard + 4]:
        yield [sample]


class Lengths(Sampler[list[int]]):
    """Batches of which each epoch has another number."""

    def __init__(self) -> None:
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[index, index + self._epoch] for index in range((5, 3, 4)[self._epoch % 3])])


def of_other_lengths() -> Any:
    return loop.resumable(DataLoader(TensorDataset(samples()), batch_sampler=Lengths()), seed=1)


def plain() -> Any:
    return DataLoader(TensorDataset(samples()), batch_size=4, shuffle=True)


def training(
    callbacks: Callable[[], list[Any]] = list,
    data: Callable[[], Any] = exact,
    schedule: Callable[[Any], Any] | None = None,
    evaluates: bool = False,
    **options: Any,
) -> Train:
    def train(context: core.Context, stop_at: int | None) -> dict[str, Any]:
        loop.seed_all(7)
        model, callback, others = Model(schedule), CoreSDKCallback(context), callbacks()
        trainer = Trainer(
            accelerator="cpu",
            callbacks=[Stops(context, stop_at), callback, *others],
            enable_checkpointing=any(isinstance(each, ModelCheckpoint) for each in others),
            enable_model_summary=False,
            enable_progress_bar=False,
            **{"max_epochs": 3, "logger": False, "log_every_n_steps": 2} | options,
        )
        validation = DataLoader(TensorDataset(samples()), batch_size=8)
        trainer.fit(model, data(), validation, ckpt_path=callback.latest_checkpoint())
        num_batches = trainer.fit_loop.total_batch_idx + 1
        assert callback.is_stopping or num_batches == NUM_BATCHES, num_batches
        saves = [each for each in others if isinstance(each, ModelCheckpoint)]
        if evaluates and not callback.is_stopping:
            trainer.validate(model, validation, ckpt_path="best", verbose=False)
            (evaluation,) = client.get_trial(context.info.trial.trial_id).iter_metrics("validation_2")
            assert evaluation.metrics["distance"] == saves[0].best_model_score
        return {
            "weights": {name: value.clone() for name, value in model.state_dict().items()},
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "optimizer": trainer.optimizers[0].state_dict(),
            "best": [(each.best_model_score, _relative(each.best_model_path)) for each in saves],
            "kept": [sorted(map(_relative, [*each.best_k_models, each.last_model_path])) for each in saves],
            "files": sorted(str(path) for path in Path().rglob("*.ckpt")),
            "best weights": [
                torch.load(each.best_model_path, weights_only=False)["state_dict"]
                for each in saves
                if each.best_model_path
            ],
        }

    return train


def _relative(path: str) -> str:
    return str(Path(path).absolute().relative_to(Path().resolve())) if path else path


def early() -> list[Any]:
    return [EarlyStopping("score", patience=1, mode="min")]


def best(**options: Any) -> Callable[[], list[Any]]:
    return lambda: [ModelCheckpoint("files", monitor="distance", save_last=True, **options)]


ALL = training(lambda: [*early(), *best(save_top_k=2)()], max_epochs=5, accumulate_grad_batches=3, schedule=by_steps)

CELLS: dict[str, Train] = {
    "all": ALL,
    "early stopping": training(early, max_epochs=5),
    "best": training(best(save_top_k=2), evaluates=True),
    "best in the logger's directory": training(lambda: [ModelCheckpoint(monitor="distance")], logger=True),
    "best of steps": training(best(every_n_train_steps=3)),
    "best of validations within an epoch": training(best(save_top_k=1), val_check_interval=2),
    "validation every other epoch": training(best(), check_val_every_n_epoch=2),
    "validation across epochs": training(best(), check_val_every_n_epoch=None, val_check_interval=5),
    "accumulation": training(best(), accumulate_grad_batches=3),
    "schedule by steps": training(schedule=by_steps),
    "schedule by epochs": training(schedule=by_epochs),
    "schedule on a plateau": training(schedule=on_plateau),
    "a number of steps": training(best(), max_epochs=-1, max_steps=NUM_BATCHES),
    "a part of each epoch": training(best(), limit_train_batches=3, max_epochs=4),
    "loaders made anew": training(best(), reload_dataloaders_every_n_epochs=1),
    "data in shards": training(best(), in_shards),
    "epochs of other lengths": training(best(), of_other_lengths),
}

STOPS: list[int | tuple[int, ...]] = [*range(1, NUM_BATCHES + 1), (2, 3, 7), (4, 5, 8, 10)]
"""The last ones are one training each, which is stopped again."""


def main(how_much: str) -> None:
    warnings.simplefilter("ignore")
    for each in ("lightning.pytorch", "lightning.fabric", "core_sdk"):
        logging.getLogger(each).setLevel(logging.ERROR)
    if how_much == "sample":
        compare("all", ALL, [2, (5, 7, 8)])
        compare("best", CELLS["best"], [6])
        return
    for name, train in CELLS.items():
        compare(name, train, STOPS)
        print(name, flush=True)
    compare("a plain loader, between epochs", training(best(), plain), [BATCHES_PER_EPOCH, 2 * BATCHES_PER_EPOCH])


if __name__ == "__main__":
    main(sys.argv[1])
