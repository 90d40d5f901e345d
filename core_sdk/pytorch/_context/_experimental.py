"""The parts of the context that may change."""

from __future__ import annotations

from collections.abc import Callable

from core_sdk.pytorch._context._trial_context import TrialContext


class PyTorchExperimentalContext:
    """`context.experimental`."""

    def __init__(self, context: TrialContext, use_amp: Callable[[], None]) -> None:
        self._context = context
        self._turn_amp_on = use_amp

    def use_amp(self) -> None:
        """Trains all models in mixed precision: with autocast, and on a GPU with scaled losses.

        Call it before `wrap_model()`. Models then return float32. `backward()` scales the loss, and
        `step_optimizer()` unscales the gradients before it clips them.
        """
        self._turn_amp_on()

    def disable_dataset_reproducibility_checks(self) -> None:
        """Accepts data loaders of any class, and samplers that draw another order each time.

        The trial itself must divide the data of such a loader among the ranks.
        """
        self._context._checks_datasets = False

    def disable_auto_to_device(self) -> None:
        """Leaves batches on the device where the loader has put them. `context.to_device()` moves them."""
        self._context._moves_batches = False
