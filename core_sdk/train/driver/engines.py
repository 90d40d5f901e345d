"""Which engine starts the workers, and with which resources."""

from __future__ import annotations

import os
import sys
from typing import Any

from core_sdk.errors import ResourcesMissingError
from core_sdk.train._configs import ScalingConfig
from core_sdk.workers import Engine, LocalEngine


def engine_of(scaling: ScalingConfig) -> Engine:
    """Raises `ResourcesMissingError`, or `MissingDependencyError` without Ray."""
    if not uses_ray(scaling):
        _check_machine(scaling)
        return LocalEngine()
    from core_sdk.workers.ray import RayEngine  # imports Ray

    return RayEngine(
        scaling.address,
        num_cpus=scaling.num_cpus_per_worker,
        num_gpus=scaling.num_gpus_per_worker,
        resources=scaling.additional_resources_per_worker,
        strategy=scaling.placement_strategy,
    )


def uses_ray(scaling: ScalingConfig) -> bool:
    if scaling.engine is not None:
        return scaling.engine == "ray"
    ray: Any = sys.modules.get("ray")
    return scaling.address is not None or (ray is not None and bool(ray.is_initialized()))


def _check_machine(scaling: ScalingConfig) -> None:
    if others := scaling.additional_resources_per_worker:
        raise ResourcesMissingError(
            ", ".join(f"{amount:g} {name}" for name, amount in others.items()), "no such resource"
        )
    if scaling.use_gpu:
        import torch  # the workers load it, too

        num_gpus = scaling.min_workers * scaling.num_gpus_per_worker
        if num_gpus > (there := torch.cuda.device_count()):
            raise ResourcesMissingError(f"{num_gpus:g} GPUs", f"{there}, and {os.cpu_count()} CPUs")
