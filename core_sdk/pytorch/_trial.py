"""The class that a user writes: a model, its data, and the training on one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from core_sdk.pytorch._callback import PyTorchCallback
from core_sdk.pytorch._data import DataLoader, data_length
from core_sdk.pytorch._reducers import Reducer


class PyTorchTrial(ABC):
    """Base class of trials.

    `__init__` builds models, optimizers and schedulers, and wraps each with the context: what is wrapped is saved in
    checkpoints. It may take further arguments. Exactly one of `evaluate_batch()` and `evaluate_full_dataset()` must be
    overridden.
    """

    @abstractmethod
    def __init__(self, context: Any, *args: Any, **kwargs: Any) -> None: ...

    @abstractmethod
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor | dict[str, Any]:
        """Trains on one batch: forward, `context.backward(loss)`, `context.step_optimizer(optimizer)`.

        Returns a dict of metrics, with the same keys for each batch, or the loss as a tensor. A metric is a number, a
        tensor with one element, or None where a batch has none. Leave tensors on their device: they are read when
        metrics are reported. Indices count from 0 over the whole training; an epoch goes once through the data.
        """

    @abstractmethod
    def build_training_data_loader(self) -> DataLoader | Any:
        """Returns a `pytorch.DataLoader` with the batch size of one rank, `context.get_per_slot_batch_size()`.

        It also returns a loader of torch after `context.experimental.disable_dataset_reproducibility_checks()`.
        """

    @abstractmethod
    def build_validation_data_loader(self) -> DataLoader | Any:
        """Returns a loader of the validation data, which is read once per validation.

        It may be of the same classes as for `build_training_data_loader()`.
        """

    if TYPE_CHECKING:
        # Trials may leave out `batch_idx`, which a type checker would refuse if the method were declared with it.
        evaluate_batch: Callable[..., dict[str, Any]]
    else:

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            """Returns the metrics of one batch, with the same keys for each. It may be defined without `batch_idx`.

            Models are in mode eval, and no gradients are computed. Metrics of batches are averaged over all samples,
            unless `evaluation_reducer()` says otherwise.
            """
            raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        """Returns the metrics of all data; runs on the chief only, with a loader that is not split over ranks."""
        raise NotImplementedError

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        """Returns how the metrics of batches are reduced: a `Reducer`, or a dict with a `Reducer` for every metric."""
        return Reducer.AVG

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Returns the callbacks by name. A callback's state is saved under its name."""
        return {}

    def get_batch_length(self, batch: Any) -> int:
        """Returns the number of samples of a batch of another loader; by default the length of its first tensor."""
        return data_length(batch)
