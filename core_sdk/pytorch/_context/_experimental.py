"""The parts of the context that may change."""

from __future__ import annotations

from core_sdk.pytorch._run import TrialRun
from core_sdk.runtime.torch_runtime import TorchRuntime


class PyTorchExperimentalContext:
    """`context.experimental`."""

    def __init__(self, run: TrialRun[TorchRuntime]) -> None:
        self._run = run

    def use_amp(self) -> None:
        """Trains all models in mixed precision: with autocast, and on a GPU with scaled losses.

        Call it before `wrap_model()`. Models then return float32. `backward()` scales the loss, and
        `step_optimizer()` unscales the gradients before it clips them.
        """
        check_nothing_is_wrapped(self._run.runtime)
        self._run.runtime.use_amp()

    def disable_dataset_reproducibility_checks(self) -> None:
        """Accepts data loaders of any class, and samplers that draw another order each time.

        The trial itself must divide the data of such a loader among the ranks.
        """
        self._run.checks_datasets = False

    def disable_auto_to_device(self) -> None:
        """Leaves batches on the device where the loader has put them. `context.to_device()` moves them."""
        self._run.moves_batches = False


def check_nothing_is_wrapped(runtime: TorchRuntime) -> None:
    """Raises `ValueError` if a model is wrapped already, which the precision would not apply to."""
    if runtime.models:
        raise ValueError("call wrap_scaler(), or experimental.use_amp(), before wrap_model()")
