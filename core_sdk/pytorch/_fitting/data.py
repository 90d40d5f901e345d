"""The batches of a training and of its validations, from the loaders that the trial has built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from core_sdk.loop.orders import Sequential, Shuffled
from core_sdk.loop.plan import Draw, Plan, Position
from core_sdk.pytorch._context import TrialContext
from core_sdk.pytorch._data import DataLoader
from core_sdk.pytorch._trial import PyTorchTrial


def checked_loader(loader: Any, method: str, *, checks_datasets: bool) -> Any:
    """Raises `TypeError` for what is no loader, `RuntimeError` for one of another class unless the trial allows it."""
    if isinstance(loader, DataLoader):
        return loader
    if not hasattr(loader, "__iter__"):
        raise TypeError(f"{method}() returned a {type(loader).__name__}; it must return a pytorch.DataLoader")
    if checks_datasets:
        raise RuntimeError(
            f"{method}() returned a {type(loader).__module__}.{type(loader).__name__}, whose order could not be kept "
            "over ranks and resumes. Return core_sdk.pytorch.DataLoader(…) with the same arguments, or call "
            "context.experimental.disable_dataset_reproducibility_checks() in the trial's __init__()"
        )
    return loader


class TrainingData:
    """The endless stream of a training's batches, which begins where the training stands."""

    def __init__(self, context: TrialContext, loader: Any) -> None:
        self._loader = loader
        self._context = context
        dataset, seed = loader.dataset, context.get_trial_seed()
        is_random = isinstance(loader.sampler, torch.utils.data.RandomSampler)
        order = Shuffled(len(dataset), seed) if is_random else Sequential(len(dataset))
        size = context._data_ranks.size
        self._plan = Plan(order, loader.batch_size * size, "drop" if loader.drop_last else "keep")
        self._position = Position()

    @property
    def batches_per_epoch(self) -> int | None:
        return self._plan.batches_per_epoch

    @property
    def is_epoch_start(self) -> bool:
        return self._position.offset == 0 or self._plan.is_epoch_over(self._position)

    def num_samples(self, draw: Draw, batch: Any) -> int:
        """Of this rank; 0 if they are another rank's."""
        return 0 if draw.is_filler else len(draw.indices)

    def stream(self) -> Iterator[tuple[Draw, Any]]:
        ranks = self._context._data_ranks
        for draw in self._plan.batches(self._position, ranks.rank, ranks.size):
            batch = self._loader.collate_fn([self._loader.dataset[index] for index in draw.indices])
            self._position = Position(draw.epoch, draw.offset)
            yield draw, batch

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._position.epoch, "offset": self._position.offset}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._position = Position(state["epoch"], state["offset"])


def validation_batches(context: TrialContext, loader: Any, trial: PyTorchTrial) -> Iterator[tuple[Any, int]]:
    """Each batch of this rank, with its number of samples; 0 if they are another rank's."""
    data = TrainingData(context, loader)
    for draw, batch in data.stream():
        yield batch, data.num_samples(draw, batch)
        if draw.is_epoch_end:
            return
