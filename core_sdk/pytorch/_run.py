"""The facts about one attempt that a trial's context and its Trainer share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from core_sdk._runtime.runtime import Runtime
from core_sdk.loop._moving import Mover
from core_sdk.pytorch._reducers import Reducers

if TYPE_CHECKING:
    from core_sdk.core import Context, DistributedContext

R = TypeVar("R", bound=Runtime)


@dataclass(slots=True)
class BatchPosition:
    """The batch that is being trained or was trained last, counted over the whole training."""

    initial_batch: int = 0
    """The number of batches trained before this start of the script."""
    batch: int | None = None
    """The last batch; None until the first one of the training. A resumed training begins with its checkpoint's."""
    epoch: int = 0
    is_epoch_start: bool = False
    is_epoch_end: bool = False


@dataclass
class TrialRun(Generic[R]):
    """An attempt of a trial on this rank. The trial's context shows parts of it; the Trainer moves it on."""

    core_context: Context | None
    """The Context of the Core API; None for a trial that is only loaded."""
    distributed: DistributedContext
    device: torch.device
    hparams: dict[str, Any] | None
    exp_conf: dict[str, Any] | None
    runtime: R
    trial_type: str = "PyTorchTrial"
    """The base class of the trial, which its checkpoints name."""
    enables_tensorboard: bool = True
    checks_datasets: bool = True
    """Whether data loaders must be able to resume exactly."""
    moves_batches: bool = True
    """Whether the Trainer moves batches to the device."""
    waiver: str = "call context.experimental.disable_dataset_reproducibility_checks() in the trial's __init__()"
    """The advice for a trial whose data need not resume exactly."""
    position: BatchPosition = field(default_factory=BatchPosition)
    reducers: Reducers = field(default_factory=Reducers)
    is_stop_requested: bool = False
    profiler: Any = None
    """A profiler of torch's that follows the batches; None if there is none."""

    def __post_init__(self) -> None:
        self.to_device = Mover(self.device)

    @property
    def core(self) -> Context:
        """The Context of the Core API. Raises `RuntimeError` for a trial that is only loaded."""
        if self.core_context is None:
            raise RuntimeError("this context only loads a trial; pytorch.init() gives one that trains and reports")
        return self.core_context

    @property
    def trial_id(self) -> int:
        return self.core.info.trial.trial_id

    @property
    def seed(self) -> int:
        return self.core.info.trial.trial_seed
