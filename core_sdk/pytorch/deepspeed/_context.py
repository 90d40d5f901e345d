"""The context of a `DeepSpeedTrial`, which keeps its engines, and knows the micro-batches of a batch."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core_sdk._runtime.runtime import Runtime
from core_sdk.core import DistributedContext
from core_sdk.errors import MissingDependencyError
from core_sdk.loop._plan import DataParallelRank
from core_sdk.pytorch._context import TrialContext
from core_sdk.pytorch._run import TrialRun
from core_sdk.util import merge_dicts

try:
    from deepspeed import DeepSpeedEngine, PipelineEngine
    from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine
except ImportError as error:
    raise MissingDependencyError("DeepSpeed", "deepspeed", "core_sdk.pytorch.deepspeed") from error

logger = logging.getLogger("core_sdk.pytorch")


@dataclass
class ModelParallelUnit:
    """The part of a rank. `context.set_mpu()` takes one, for model parallelism that is not DeepSpeed's own."""

    data_parallel_rank: int
    """The index of the rank's share of each batch."""
    data_parallel_world_size: int
    """The number of shares into which a batch is divided."""
    should_report_metrics: bool
    """Whether the rank's metrics are reported, usually true on the ranks with the last layers."""
    should_build_data_loader: bool
    """Whether the rank reads data, usually true on the ranks with the first and the last layers."""


def make_data_parallel_mpu(dist_context: DistributedContext) -> ModelParallelUnit:
    """Returns this rank's part for a model that is whole on each rank, or divided by ZeRO."""
    return ModelParallelUnit(dist_context.rank, dist_context.size, True, True)


def make_deepspeed_mpu(topology: Any) -> ModelParallelUnit:
    """Returns this rank's part in a pipeline. `topology` is the `mpu` of DeepSpeed's `PipelineEngine`."""
    stage, num_stages = topology.get_pipe_parallel_rank(), topology.get_pipe_parallel_world_size()
    return ModelParallelUnit(
        data_parallel_rank=topology.get_data_parallel_rank(),
        data_parallel_world_size=topology.get_data_parallel_world_size(),
        should_report_metrics=True,
        should_build_data_loader=topology.get_slice_parallel_rank() == 0 and stage in (0, num_stages - 1),
    )


class EngineRuntime(Runtime):
    """The engines of a training, which DeepSpeed spreads over the ranks."""

    writes_on_all_ranks = True

    def __init__(self, ranks: DistributedContext, device: torch.device) -> None:
        self.models: list[DeepSpeedEngine] = []
        self.mpu = make_data_parallel_mpu(ranks)
        self.has_own_mpu = False
        self.accumulates_itself = False
        """Whether the trial trains on all micro-batches of a batch in one call."""
        self.save_engines: Callable[[Path], object] = lambda directory: None
        """Saves the engines into the directory of a checkpoint, on all ranks."""

    @property
    def data_ranks(self) -> DataParallelRank:
        return DataParallelRank(self.mpu.data_parallel_rank, self.mpu.data_parallel_world_size)

    @property
    def is_pipeline(self) -> bool:
        """Whether the first engine is a pipeline."""
        return bool(self.models) and isinstance(self.models[0], PipelineEngine)

    @property
    def micro_batches(self) -> tuple[int, int]:
        """The size and the number of the micro-batches of a batch on each rank."""
        if not self.models:
            raise RuntimeError("no engine says how large micro-batches are: call wrap_model_engine() first")
        return _micro_batches(self.models[0])

    @property
    def takes_whole_batches(self) -> bool:
        """Whether `train_batch()` is called once a batch, and not for each of its micro-batches."""
        return self.is_pipeline or self.accumulates_itself or self.micro_batches[1] == 1

    def wrap(self, engine: DeepSpeedEngine) -> None:
        if not isinstance(engine, DeepSpeedEngine):
            raise TypeError(
                f"wrap_model_engine() takes an engine, not {type(engine).__name__}: it is the first value that "
                "deepspeed.initialize() returns"
            )
        if not self.models and isinstance(engine, PipelineEngine):
            self.mpu = make_deepspeed_mpu(engine.mpu)
        elif self.models and _micro_batches(engine) != self.micro_batches:
            logger.warning(
                "engine %d has micro-batches of another size or number than the first engine, which counts",
                len(self.models),
            )
        self.models.append(engine)

    def check(self, owner: str) -> None:
        if not self.models:
            raise ValueError(f"{owner} has wrapped no engine: call context.wrap_model_engine(engine) in its __init__()")

    def state_dict(self) -> dict[str, Any]:
        """Returns nothing, since the engines write their own files."""
        return {}

    def load_state_dict(self, state: dict[str, Any], kept: Collection[str]) -> None:
        """Does nothing, since the engines are loaded already."""

    @property
    def writes_in_background(self) -> bool:  # type: ignore[override]
        """Whether all engines leave it to torch to write their files."""
        return all(type(engine.checkpoint_engine) is TorchCheckpointEngine for engine in self.models)

    def own_files(self, directory: Path) -> dict[str, Any]:
        """Returns what the engines would write into each file. What they write otherwise is written."""
        taken: dict[str, Any] = {}
        with contextlib.ExitStack() as undo:
            if self.writes_in_background:
                for engine in self.models:
                    undo.callback(setattr, engine, "checkpoint_engine", engine.checkpoint_engine)
                    engine.checkpoint_engine = _Taking(taken)
            self.save_engines(directory)
        return taken


class _Taking(TorchCheckpointEngine):  # type: ignore[misc]
    """Takes what an engine would write into each file."""

    def __init__(self, taken: dict[str, Any]) -> None:
        super().__init__()
        self._taken = taken

    def save(self, state_dict: Any, path: str) -> None:
        self._taken[path] = state_dict


class DeepSpeedTrialContext(TrialContext):
    """The context that `deepspeed.init()` makes, and that the trial's `__init__()` gets.

    Engines are saved in each checkpoint and restored from it, in the order of wrapping. The first one says how many
    micro-batches a batch has.
    """

    def __init__(self, run: TrialRun[EngineRuntime]) -> None:
        super().__init__(run)
        run.trial_type = "DeepSpeedTrial"
        run.moves_batches = False
        run.waiver = "call context.disable_dataset_reproducibility_checks() in the trial's __init__()"
        self._runtime = run.runtime
        self.models: list[DeepSpeedEngine] = self._runtime.models

    def wrap_model_engine(self, model: DeepSpeedEngine) -> DeepSpeedEngine:
        """Registers an engine that `deepspeed.initialize()` has made, and returns it."""
        self._runtime.wrap(model)
        return model

    def set_mpu(self, mpu: ModelParallelUnit) -> None:
        """Sets this rank's part, for model parallelism that is not DeepSpeed's own. Call it once, after wrapping."""
        if not self.models:
            raise RuntimeError("set_mpu() comes after wrap_model_engine()")
        if self._runtime.has_own_mpu:
            raise RuntimeError("set_mpu() was called already: there is one ModelParallelUnit for all engines")
        self._runtime.has_own_mpu = True
        self._runtime.mpu = mpu

    def disable_auto_grad_accumulation(self) -> None:
        """Makes the Trainer call `train_batch()` once a batch, which then trains on all of its micro-batches itself."""
        self._runtime.accumulates_itself = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Does the same as `context.experimental.disable_dataset_reproducibility_checks()` in a `PyTorchTrial`."""
        self._run.checks_datasets = False

    @property
    def use_pipeline_parallel(self) -> bool:
        """Whether the first engine is a pipeline."""
        return self._runtime.is_pipeline

    def get_train_micro_batch_size_per_gpu(self) -> int:
        """Returns the number of samples of a micro-batch, from DeepSpeed's configuration."""
        return self._runtime.micro_batches[0]

    def get_num_micro_batches_per_slot(self) -> int:
        """Returns the number of micro-batches of a batch on each rank: DeepSpeed's `gradient_accumulation_steps`."""
        return self._runtime.micro_batches[1]

    @property
    def train_micro_batch_size_per_gpu(self) -> int:
        """Deprecated, as in `determined`: call `get_train_micro_batch_size_per_gpu()`."""
        warnings.warn("call get_train_micro_batch_size_per_gpu()", FutureWarning, stacklevel=2)
        return self.get_train_micro_batch_size_per_gpu()

    @property
    def num_micro_batches_per_slot(self) -> int:
        """Deprecated, as in `determined`: call `get_num_micro_batches_per_slot()`."""
        warnings.warn("call get_num_micro_batches_per_slot()", FutureWarning, stacklevel=2)
        return self.get_num_micro_batches_per_slot()


def overwrite_deepspeed_config(
    base_ds_config: str | dict[str, Any], source_ds_dict: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a copy of DeepSpeed's configuration, a dict or a JSON file, with some values replaced."""
    if isinstance(base_ds_config, str):
        base_ds_config = json.loads(Path(base_ds_config).read_text())
    if not isinstance(base_ds_config, dict):
        raise TypeError(f"base_ds_config is a {type(base_ds_config).__name__}; it must be a dict or the path of a file")
    return merge_dicts(base_ds_config, source_ds_dict)


def _micro_batches(engine: DeepSpeedEngine) -> tuple[int, int]:
    """Returns the size and the number of the micro-batches of a batch."""
    return int(engine.train_micro_batch_size_per_gpu()), int(engine.gradient_accumulation_steps())
