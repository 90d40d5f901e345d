"""Chooses the engine that starts the workers, and their resources."""

from __future__ import annotations

from core_sdk.train._configs import ScalingConfig
from core_sdk.workers import Engine, open_engine

# What every worker imports until it calls the function.
_MODULES = (
    "cloudpickle",
    "torch.distributed",
    "core_sdk.distributed.joining",
    "core_sdk.loop.rng",
    "core_sdk.train.worker.devices",
    "core_sdk.train.worker.running",
)


def engine_of(scaling: ScalingConfig) -> Engine:
    """Returns the engine that starts the workers.

    Raises `ResourcesMissingError`, or `MissingDependencyError` without Ray.
    """
    return open_engine(
        scaling.engine,
        scaling.min_workers,
        address=scaling.address,
        num_cpus=scaling.num_cpus_per_worker,
        num_gpus=scaling.num_gpus_per_worker,
        resources=scaling.additional_resources_per_worker,
        strategy=scaling.placement_strategy,
        imported_modules=_MODULES,
    )
