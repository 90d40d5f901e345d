"""The batches of a training and of its validations, from the loaders that the trial has built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_sdk.distributed import DistributedContext
from core_sdk.loop import ResumableLoader, resumable
from core_sdk.loop.plan import Draw
from core_sdk.pytorch._context import TrialContext
from core_sdk.pytorch._data import DataLoader
from core_sdk.pytorch._trial import PyTorchTrial


def checked_loader(loader: Any, method: str, *, checks_datasets: bool) -> Any:
    """Raises `TypeError` for what is no loader, `RuntimeError` for one of another class unless the trial allows it."""
    if isinstance(loader, DataLoader | ResumableLoader):
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


class Data:
    """The batches of one loader, for this rank.

    Those of a `pytorch.DataLoader` are divided among the ranks. Any other loader is the trial's own affair: each rank
    reads its own one, and it resumes as well as it can.
    """

    def __init__(self, trial: PyTorchTrial, loader: Any, context: TrialContext) -> None:
        self._trial = trial
        is_ours = isinstance(loader, DataLoader | ResumableLoader)
        self._num_readers = 1 if is_ours else context._data_ranks.size
        # A sampler of batches may put any number of samples into each.
        self._draws_samples = isinstance(loader, DataLoader) and loader.batch_size is not None
        if not isinstance(loader, ResumableLoader):
            ranks = context._data_ranks if is_ours else DistributedContext()
            loader = resumable(loader, seed=context.get_trial_seed(), distributed=ranks, exact=is_ours)
        self._loader: ResumableLoader = loader
        self._agrees_on_epochs = self._num_readers == 1 or self._lengths_agree(context.distributed)

    @property
    def batches_per_epoch(self) -> int | None:
        return self._loader.batches_per_epoch

    @property
    def is_divided(self) -> bool:
        """Whether all ranks have equally many batches."""
        return self._num_readers == 1

    def num_samples(self, draw: Draw, batch: Any) -> int:
        """Of this rank; 0 if another rank has them, too."""
        if draw.is_filler:
            return 0
        return len(draw.indices) if self._draws_samples else self._trial.get_batch_length(batch)

    def stream(self) -> Iterator[tuple[Draw, Any]]:
        """The batches of a training, without an end."""
        if self._num_readers == 1:
            return self._loader.stream()
        return ((self._over_readers(draw), batch) for draw, batch in self._loader.stream())

    def single_pass(self) -> Iterator[tuple[Any, int]]:
        """The batches of a validation, with their numbers of samples."""
        return ((batch, self.num_samples(draw, batch)) for draw, batch in self._loader.single_pass())

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)

    def _over_readers(self, draw: Draw) -> Draw:
        is_epoch_end = draw.is_epoch_end and self._agrees_on_epochs
        return draw._replace(num_global=draw.num_global * self._num_readers, is_epoch_end=is_epoch_end)

    def _lengths_agree(self, distributed: DistributedContext) -> bool:
        """Whether the loaders of all ranks have a length. Raises `ValueError` if the lengths differ."""
        lengths = distributed.allgather(self.batches_per_epoch)
        if len(set(lengths)) > 1:
            raise ValueError(
                f"the loaders of the ranks have {', '.join(map(str, lengths))} batches, so that their epochs would not "
                "end together: give each rank equally many, or return a core_sdk.pytorch.DataLoader with all data"
            )
        return lengths[0] is not None
