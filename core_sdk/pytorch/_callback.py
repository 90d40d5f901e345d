"""The hooks by which a user's code can take part in a training."""

from __future__ import annotations

from typing import Any


class PyTorchCallback:
    """Base class of callbacks: override the hooks that are wanted. Each rank has its own copy.

    `PyTorchTrial.build_callbacks()` gives callbacks their names. The state that `state_dict()` returns is saved under
    the callback's name in each checkpoint, and passed to `load_state_dict()` after a resume. A callback with attributes
    that change overrides both.

    Hooks run on all ranks unless they say otherwise. They run in the order in which callbacks were given.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Runs before all other hooks, before the data loaders are built.

        `first_batch_idx` is the index of the first batch to be trained. It is above 0 if the training goes on from the
        checkpoint `checkpoint_uuid`; a training that only takes its weights from another trial's begins at 0.
        """

    def on_trial_shutdown(self) -> None:
        """Runs after all other hooks, also after an error. The trial may be complete, paused or failed."""

    def on_training_start(self) -> None:
        """Runs once the checkpoint is loaded, before the first batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Runs before the first batch of an epoch. A resume in the middle of an epoch does not repeat it."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """Runs after the last batch of an epoch, before what is due then."""

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]) -> None:
        """Runs after each batch, with what this rank's `train_batch()` returned; tensors are still on their device."""

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        """Runs each time that training metrics are reported.

        `avg_metrics` are the means over all samples since the last time, and `batch_metrics` the means of each batch,
        both over all ranks. `avg_metrics` also has the `batches` and `epochs` trained.
        """

    def on_validation_start(self) -> None:
        """Runs before each validation."""

    def on_validation_epoch_start(self) -> None:
        """Runs before the first batch of each validation by `evaluate_batch()`."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """Runs after the last batch of each validation, with what this rank's `evaluate_batch()` returned."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """Runs after each validation, with the metrics over all ranks, and the `batches` and `epochs` trained.

        It may change the dict: what it leaves there is reported.
        """

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """Runs before the content of a checkpoint is applied; it may change the dict."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Runs before a checkpoint is written, on the chief only; it may change the dict."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """Runs when the files of a checkpoint are written, on the chief only; it may add files to the directory."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """The old name of `on_checkpoint_write_end()`."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """Runs when a checkpoint is stored and recorded."""

    def on_exception(self, error: BaseException) -> None:
        """Runs when an error ends the training, before `on_trial_shutdown()`; on the ranks where it is raised."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to save in a checkpoint: numbers, texts, tensors, and lists and dicts of these."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes back what `state_dict()` returned when the checkpoint was saved."""
