"""The part of a rank in a training whose model is divided among ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core_sdk.core import DistributedContext


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
