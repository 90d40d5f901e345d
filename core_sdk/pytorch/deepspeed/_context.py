"""The context of a `DeepSpeedTrial`, which keeps its engines, and knows the micro-batches of a batch."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core_sdk.errors import MissingDependencyError
from core_sdk.pytorch._context import TrialContext, TrialSetup
from core_sdk.pytorch._strategies import Strategy
from core_sdk.pytorch.deepspeed._mpu import ModelParallelUnit, make_data_parallel_mpu, make_deepspeed_mpu

try:
    from deepspeed import DeepSpeedEngine, PipelineEngine
except ImportError as error:
    raise MissingDependencyError("DeepSpeed", "deepspeed", "core_sdk.pytorch.deepspeed") from error

logger = logging.getLogger("core_sdk.pytorch")


class _DataRanks(NamedTuple):
    rank: int
    size: int


class DeepSpeedTrialContext(TrialContext):
    """The context that `deepspeed.init()` makes, and that the trial's `__init__()` gets.

    Engines are saved in each checkpoint and restored from it, in the order of wrapping. The first one says how many
    micro-batches a batch has.
    """

    _waiver = "call context.disable_dataset_reproducibility_checks() in the trial's __init__()"

    def __init__(self, setup: TrialSetup) -> None:
        super().__init__(setup)
        self.models: list[DeepSpeedEngine] = []
        self._strategies: list[Strategy] = []
        """Always empty: there are no models beside the engines."""
        self._moves_batches = False
        self._mpu = make_data_parallel_mpu(setup.distributed)
        self._has_own_mpu = False
        self._accumulates_itself = False

    def wrap_model_engine(self, model: DeepSpeedEngine) -> DeepSpeedEngine:
        """Registers an engine that `deepspeed.initialize()` has made, and returns it."""
        if not isinstance(model, DeepSpeedEngine):
            raise TypeError(
                f"wrap_model_engine() takes an engine, not {type(model).__name__}: it is the first value that "
                "deepspeed.initialize() returns"
            )
        if not self.models and isinstance(model, PipelineEngine):
            self._mpu = make_deepspeed_mpu(model.mpu)
        elif self.models and _micro_batches(model) != _micro_batches(self.models[0]):
            logger.warning(
                "engine %d has micro-batches of another size or number than the first engine, which counts",
                len(self.models),
            )
        self.models.append(model)
        return model

    def set_mpu(self, mpu: ModelParallelUnit) -> None:
        """Sets this rank's part, for model parallelism that is not DeepSpeed's own. Call it once, after wrapping."""
        if not self.models:
            raise RuntimeError("set_mpu() comes after wrap_model_engine()")
        if self._has_own_mpu:
            raise RuntimeError("set_mpu() was called already: there is one ModelParallelUnit for all engines")
        self._has_own_mpu = True
        self._mpu = mpu

    def disable_auto_grad_accumulation(self) -> None:
        """Has `train_batch()` called once a batch; it then trains on all of its micro-batches itself."""
        self._accumulates_itself = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Does the same as `context.experimental.disable_dataset_reproducibility_checks()` in a `PyTorchTrial`."""
        self._checks_datasets = False

    @property
    def use_pipeline_parallel(self) -> bool:
        """Whether the first engine is a pipeline."""
        return bool(self.models) and isinstance(self.models[0], PipelineEngine)

    def get_train_micro_batch_size_per_gpu(self) -> int:
        """Returns the number of samples of a micro-batch, from DeepSpeed's configuration."""
        return _micro_batches(self._first_engine())[0]

    def get_num_micro_batches_per_slot(self) -> int:
        """Returns the number of micro-batches of a batch on each rank: DeepSpeed's `gradient_accumulation_steps`."""
        return _micro_batches(self._first_engine())[1]

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

    def _first_engine(self) -> DeepSpeedEngine:
        if not self.models:
            raise RuntimeError("no engine says how large micro-batches are: call wrap_model_engine() first")
        return self.models[0]

    @property
    def _data_ranks(self) -> _DataRanks:
        return _DataRanks(self._mpu.data_parallel_rank, self._mpu.data_parallel_world_size)

    @property
    def _calls_per_batch(self) -> int:
        """The number of calls of `train_batch()` for a batch."""
        takes_all = self.use_pipeline_parallel or self._accumulates_itself
        return 1 if takes_all else self.get_num_micro_batches_per_slot()


def overwrite_deepspeed_config(
    base_ds_config: str | dict[str, Any], source_ds_dict: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a copy of DeepSpeed's configuration, a dict or a JSON file, with some values replaced."""
    if isinstance(base_ds_config, str):
        base_ds_config = json.loads(Path(base_ds_config).read_text())
    if not isinstance(base_ds_config, dict):
        raise TypeError(f"base_ds_config is a {type(base_ds_config).__name__}; it must be a dict or the path of a file")
    return _merged(base_ds_config, source_ds_dict)


def _merged(base: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(dict(base))
    for key, value in source.items():
        are_both_sections = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if are_both_sections else copy.deepcopy(value)
    return merged


def _micro_batches(engine: DeepSpeedEngine) -> tuple[int, int]:
    """Returns the size and the number of the micro-batches of a batch."""
    return int(engine.train_micro_batch_size_per_gpu()), int(engine.gradient_accumulation_steps())
