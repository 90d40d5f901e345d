"""The class that a user writes for DeepSpeed: engines, their data, and the training on one micro-batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_sdk.pytorch._trial import PyTorchTrial

if TYPE_CHECKING:
    from core_sdk.pytorch.deepspeed._context import DeepSpeedTrialContext


class DeepSpeedTrial(PyTorchTrial):
    """Base class of trials that DeepSpeed trains. It differs from `PyTorchTrial` in what its methods get.

    `__init__` makes engines with `deepspeed.initialize()`, and wraps each with `context.wrap_model_engine()`. Data
    loaders have the batch size of one micro-batch, `context.get_train_micro_batch_size_per_gpu()`.

    `evaluate_batch(dataloader_iter, batch_idx)` returns the metrics of the next micro-batch; with a pipeline, of as
    many as make a batch in training.
    """

    @abstractmethod
    def __init__(self, context: DeepSpeedTrialContext, *args: Any, **kwargs: Any) -> None: ...

    @abstractmethod
    def train_batch(self, dataloader_iter: Iterator[Any] | None, epoch_idx: int, batch_idx: int) -> Any:
        """Trains on the next micro-batch of `dataloader_iter`: `engine(…)`, `engine.backward(loss)`, `engine.step()`.

        It is called as often as there are micro-batches in a batch, with the same indices. With a pipeline, or after
        `context.disable_auto_grad_accumulation()`, it is called once, and takes all micro-batches of the batch.
        `context.to_device()` moves data. Returns metrics as `PyTorchTrial.train_batch()` does. The iterator is None on
        ranks that read no data.
        """

    def save(self, context: DeepSpeedTrialContext, path: Path) -> None:
        """Saves the engines into the directory `path` of a checkpoint. Called on all ranks."""
        for index, engine in enumerate(context.models):
            engine.save_checkpoint(path, tag=f"model{index}")

    def load(self, context: DeepSpeedTrialContext, load_path: Path) -> None:
        """Loads what `save()` has saved. Called on all ranks."""
        for index, engine in enumerate(context.models):
            loaded, _ = engine.load_checkpoint(load_path, tag=f"model{index}")
            if loaded is None:
                raise ValueError(f"{load_path} has no engine {index}: DeepSpeed found nothing of the tag model{index}")
