"""Lightning's Trainer in a training function.

def train_func():
    trainer = lightning.Trainer(
        strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()], callbacks=[RayTrainReportCallback()], ...
    )
    prepare_trainer(trainer).fit(model, data)
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from core_sdk.integrations.lightning import framework
from core_sdk.loop import _rng as rng
from core_sdk.train import collective
from core_sdk.train._checkpoint import Checkpoint
from core_sdk.train._functions import get_context, report
from core_sdk.train.torch import get_device

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

__all__ = [
    "RayDDPStrategy",
    "RayDeepSpeedStrategy",
    "RayFSDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "prepare_trainer",
]


_environments: Any = importlib.import_module(f"{framework.__name__}.plugins.environments")


class RayLightningEnvironment(_environments.LightningEnvironment):  # type: ignore[misc]
    """Tells Lightning that the workers are its ranks, and that they are already started."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    def world_size(self) -> int:
        return get_context().get_world_size()

    def global_rank(self) -> int:
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """Does nothing: the workers know it already."""

    def set_global_rank(self, rank: int) -> None:
        """Does nothing: the worker knows it already."""


class _OnWorkers:
    """A strategy whose ranks are the workers."""

    @property
    def root_device(self) -> torch.device:
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        context = get_context()
        return {"num_replicas": context.get_world_size(), "rank": context.get_world_rank()}


class RayDDPStrategy(_OnWorkers, framework.strategies.DDPStrategy):  # type: ignore[misc]
    """Lightning's `DDPStrategy` on the workers; it takes the same arguments."""


class RayFSDPStrategy(_OnWorkers, framework.strategies.FSDPStrategy):  # type: ignore[misc]
    """Lightning's `FSDPStrategy` on the workers; it takes the same arguments."""


class RayDeepSpeedStrategy(_OnWorkers, framework.strategies.DeepSpeedStrategy):  # type: ignore[misc]
    """Lightning's `DeepSpeedStrategy` on the workers; it takes the same arguments."""


def prepare_trainer(trainer: Trainer) -> Trainer:
    """Returns the Trainer. Raises `ValueError` if it does not train with all workers, as each would train alone."""
    if trainer.world_size != (num_workers := get_context().get_world_size()):
        raise ValueError(
            f"the Trainer has {trainer.world_size} ranks, and there are {num_workers} workers: pass it "
            "strategy=RayDDPStrategy() or its like, and plugins=[RayLightningEnvironment()]"
        )
    return trainer


class RayTrainReportCallback(framework.Callback):  # type: ignore[misc]
    """Reports what the module has logged at the end of each epoch, with a checkpoint."""

    CHECKPOINT_NAME = "checkpoint.ckpt"
    """The name of Lightning's checkpoint, a file or directory, within the reported checkpoint."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        metrics |= {"epoch": trainer.current_epoch, "step": trainer.global_step}
        # The same path on all ranks: some strategies write one checkpoint together.
        directory = Path(collective.broadcast_from_rank_zero(tempfile.mkdtemp(prefix="lightning-")))
        directory.mkdir(exist_ok=True)
        try:
            with rng.kept():  # hooks of a save may draw
                trainer.save_checkpoint(directory / self.CHECKPOINT_NAME, weights_only=False)
            report(metrics, checkpoint=Checkpoint.from_directory(directory))
        finally:
            if get_context().get_local_rank() == 0:
                shutil.rmtree(directory, ignore_errors=True)
