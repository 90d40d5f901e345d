"""The parts of the context that may change."""

from __future__ import annotations


class PyTorchExperimentalContext:
    """`context.experimental`."""

    def __init__(self) -> None:
        self._checks_datasets = True
        self._moves_batches = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Accepts data loaders of any class; dividing and shuffling the data is then up to the trial."""
        self._checks_datasets = False

    def disable_auto_to_device(self) -> None:
        """Leaves batches where the loader has put them; `context.to_device()` moves them."""
        self._moves_batches = False
