"""A tracker for Accelerate, and functions that store and load its state as checkpoints.

with core_sdk.core.init(name="digits") as core_context:
    accelerator = Accelerator(log_with=CoreSDKTracker(core_context))
    accelerator.init_trackers("digits")
    ...
    accelerator.log({"loss": loss}, step=steps_completed)
    save_state(accelerator, core_context, {"steps_completed": steps_completed})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from core_sdk.core import Context
from core_sdk.errors import MissingDependencyError
from core_sdk.integrations._reporting import Reporter
from core_sdk.loop import _rng as rng

try:
    from accelerate import Accelerator, PartialState
    from accelerate.tracking import GeneralTracker
except ImportError as error:
    raise MissingDependencyError("Accelerate", "accelerate", "core_sdk.integrations.accelerate") from error


class CoreSDKTracker(GeneralTracker):
    """Reports the values of `accelerator.log()` as training metrics, unless `log_kwargs` names another group.

    accelerator.log({"accuracy": 0.9}, step=100, log_kwargs={"core-sdk": {"group": "validation"}})
    """

    name = "core-sdk"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, core_context: Context) -> None:
        super().__init__()
        self._core_context = core_context
        self._reporter = Reporter(core_context)

    @property
    def tracker(self) -> Context:
        """The Context, which `accelerator.get_tracker("core-sdk", unwrap=True)` returns."""
        return self._core_context

    def start(self) -> None:
        """Raises `ValueError` unless all ranks of the Context train together."""
        _check_world_size(self._core_context)

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Records the values as hyperparameters, unless the trial has any."""
        self._core_context.record_hparams(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, group: str = "training") -> None:
        """Reports values at a step, which is the number of steps completed. Raises `ValueError` without a step."""
        if step is None:
            raise ValueError("accelerator.log() has no step: pass step, the number of steps completed")
        self._reporter.report(group, step, values)


def save_state(accelerator: Accelerator, core_context: Context, metadata: dict[str, Any]) -> str:
    """Stores the files of `accelerator.save_state()` as a checkpoint, and returns its storage id. Collective.

    `metadata` must have `steps_completed`, and may have other values that a resume needs. Random numbers that a hook of
    the save draws do not change the training, nor what the checkpoint has of the generators. Raises `ValueError` unless
    all ranks of the Context train together.
    """
    _check_world_size(core_context)
    random = rng.capture()
    with core_context.checkpoint.store_path(metadata, shard=True) as (path, storage_id), rng.kept():
        accelerator.save_state(str(path))
        torch.save(random, path / _random_file(core_context))
    return storage_id


def load_state(accelerator: Accelerator, core_context: Context) -> dict[str, Any] | None:
    """Loads the checkpoint from which this attempt goes on, and returns its metadata, or None if there is none.

    Collective. Call it after `accelerator.prepare()`. Raises `ValueError` unless all ranks of
    the Context train together.
    """
    _check_world_size(core_context)
    storage_id = core_context.info.latest_checkpoint
    if storage_id is None:
        return None
    with core_context.checkpoint.restore_path(storage_id) as path:
        accelerator.load_state(str(path))
        # Accelerate's own file has the generators as they were after the hooks of the save.
        if (file := path / _random_file(core_context)).exists():
            rng.restore(torch.load(file, weights_only=True))
    return core_context.checkpoint.get_metadata(storage_id)


def _random_file(core_context: Context) -> str:
    return f"core_sdk_random_{core_context.distributed.rank}.pt"


def _check_world_size(core_context: Context) -> None:
    world_size, num_ranks = PartialState().num_processes, core_context.distributed.size
    if world_size != num_ranks:
        raise ValueError(
            f"the world size of the Accelerator is {world_size}, and that of the Context {num_ranks}: ranks would "
            "train alone. Where they have no GPU, use Accelerator(cpu=True); a Context of all ranks is that of "
            "init(distributed=DistributedContext.from_torch_distributed())"
        )
