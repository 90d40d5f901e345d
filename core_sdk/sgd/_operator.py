"""The class whose methods train and validate on each worker of a `TorchTrainer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import torch

from core_sdk.sgd import _passes
from core_sdk.sgd._creators import as_given
from core_sdk.sgd._runner import Runner

NUM_SAMPLES = "num_samples"
"""The metric of a batch that says how many samples the other ones are means of."""


class TrainingOperator:
    """Trains and validates on one worker. Names and semantics come from RaySGD 1.x.

    Override `setup()`, to register what is trained and its data, and any of `train_epoch()`, `train_batch()`,
    `validate()` and `validate_batch()`. They find `models`, `optimizers`, `schedulers` and `criterion`, the first of
    each as `model`, `optimizer` and `scheduler`, and `config`, `device`, `world_rank` and `world_size`.
    """

    creators: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    """The creators of `from_creators()`, by the names of the trainer's arguments."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.config = runner.config
        self.device, self.use_gpu = runner.device, runner.device.type == "cuda"
        self.world_rank, self.world_size = runner.rank, runner.world_size
        self.global_step = 0
        self.models: Any = ()
        if hasattr(runner, "models"):
            self._find_registered()

    @classmethod
    def from_creators(
        cls,
        model_creator: Callable[..., Any],
        optimizer_creator: Callable[..., Any],
        data_creator: Callable[..., Any] | None = None,
        scheduler_creator: Callable[..., Any] | None = None,
        loss_creator: Callable[..., Any] | None = None,
        serialize_data_creation: bool | None = None,
    ) -> type[TrainingOperator]:
        """Returns a class that trains what the creators make. One worker of a node at a time calls `data_creator`."""
        given = {
            "model_creator": model_creator,
            "optimizer_creator": optimizer_creator,
            "data_creator": data_creator,
            "scheduler_creator": scheduler_creator,
            "loss_creator": loss_creator,
        }
        creators = {name: each for name, each in given.items() if each is not None}
        return type(f"{cls.__name__}FromCreators", (cls,), {"creators": creators, "__module__": "__main__"})

    def setup(self, config: dict[str, Any]) -> None:
        """Makes and registers what is trained, unless creators do. Called once on each worker."""

    def register(
        self, *, models: Any, optimizers: Any, criterion: Any = None, schedulers: Any = None, **options: Any
    ) -> Any:
        """Registers what is trained, and returns it on the device, in wrappers for several workers. Collective.

        Returns the models, the optimizers, and the criterion and the schedulers if they were given.
        """
        if options:
            raise ValueError(f"register() does not know {', '.join(options)}: models are wrapped by the trainer itself")
        self._runner.register(models, optimizers, [] if schedulers is None else schedulers, criterion)
        self._find_registered()
        return (
            as_given(self.models),
            as_given(self.optimizers),
            *([] if criterion is None else [self.criterion]),
            *([] if schedulers is None else [as_given(self.schedulers)]),
        )

    def register_data(self, *, train_loader: Any, validation_loader: Any = None) -> None:
        """Registers the data: a `DataLoader`, whose batch size counts the samples of one worker, or a dataset."""
        self._runner.register_data(*[each for each in (train_loader, validation_loader) if each is not None])

    def train_epoch(self, iterator: Iterator[Any], info: dict[str, Any]) -> Mapping[str, Any]:
        """Trains one pass over the data, by `train_batch()`, and returns means of its metrics."""
        means = _BatchMeans()
        step = info["scheduler_step"]
        for index, batch in enumerate(iterator):
            batch_info = {"batch_idx": index, "global_step": self.global_step, **info}
            means.add(self.train_batch(batch, batch_info))
            if step == "batch":
                self._step_schedulers()
            self.global_step += 1
        if step == "epoch":
            self._step_schedulers()
        return means.metrics()

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> Mapping[str, Any]:
        """Makes a step of the optimizer by a batch of features and a target. Returns numbers by their names."""
        loss = _passes.train_batch(self.model, batch, self.criterion, self.optimizer, self._runner.runtime)
        return {"train_loss": loss.item(), NUM_SAMPLES: len(batch[-1])}

    def validate(self, val_iterator: Iterator[Any], info: dict[str, Any]) -> Mapping[str, Any]:
        """Validates on all data, by `validate_batch()`, and returns means of its metrics."""
        means = _BatchMeans()
        for index, batch in enumerate(val_iterator):
            means.add(self.validate_batch(batch, {"batch_idx": index, **info}))
        return means.metrics()

    def validate_batch(self, batch: Any, batch_info: dict[str, Any]) -> Mapping[str, Any]:
        """Returns the loss of a batch, and the accuracy if its targets are classes."""
        features, target = _passes.parts(batch, self.device)
        output = self.model(*features)
        metrics = {"val_loss": self.criterion(output, target).item(), NUM_SAMPLES: len(target)}
        if _passes.are_classes(output, target):
            metrics["val_accuracy"] = (output.argmax(dim=1) == target).double().mean().item()
        return metrics

    def state_dict(self) -> Any:
        """Returns state of your own that belongs to a checkpoint, as plain values, or None."""
        return None

    def load_state_dict(self, state_dict: Any) -> None:
        """Takes over what `state_dict()` has returned."""

    def _step_schedulers(self) -> None:
        for scheduler in self.schedulers:
            scheduler.step()

    def _find_registered(self) -> None:
        runner = self._runner
        self.models, self.model = runner.spread_models, runner.spread_models[0]
        self.optimizers, self.optimizer = runner.optimizers, runner.optimizers[0]
        self.schedulers = runner.schedulers
        self.scheduler = self.schedulers[0] if self.schedulers else None
        self.criterion = runner.criterion


class _BatchMeans:
    """The means over samples, and the last values, of what the batches return."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._num_samples = self._num_batches = 0

    def add(self, metrics: Mapping[str, Any]) -> None:
        num_samples = int(metrics.get(NUM_SAMPLES, 1))
        self._num_samples += num_samples
        self._num_batches += 1
        for name, value in metrics.items():
            if name != NUM_SAMPLES:
                number = value.item() if isinstance(value, torch.Tensor) else value
                self._sums[name] = self._sums.get(name, 0.0) + number * num_samples
                self._last[f"last_{name}"] = number

    def metrics(self) -> dict[str, float]:
        means = {name: total / self._num_samples for name, total in self._sums.items()}
        return {**means, **self._last, "batch_count": self._num_batches}
