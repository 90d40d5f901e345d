"""Opens the engine that starts a program's workers, with the resources of each worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from core_sdk._execution.workers._engine import Engine
from core_sdk._execution.workers.local import LocalEngine
from core_sdk.errors import WorkerError

if TYPE_CHECKING:
    from core_sdk._execution.workers.ray import Strategy

EngineName = Literal["local", "ray"]


def open_engine(
    engine: EngineName | Engine | None,
    num_workers: int,
    *,
    address: str | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    resources: Mapping[str, float] | None = None,
    strategy: Strategy = "PACK",
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None,
    imported_modules: Sequence[str] = (),
) -> Engine:
    """Opens the engine of this name. An `Engine` is returned as it is.

    None stands for Ray if the program is connected to a cluster or an `address` is given, and otherwise for this
    machine.

    `num_cpus`, `num_gpus` and `resources` are for each of the `num_workers` workers. On this
    machine workers begin with `imported_modules`. Raises `WorkerError` if this machine has too little, and
    for Ray `RayClusterError`, or `MissingDependencyError` if it is not installed.
    """
    if isinstance(engine, Engine):
        return engine
    if engine == "local" or (engine is None and address is None and not _is_connected_to_ray()):
        if label_selector:
            raise _missing(f"nodes with the labels {label_selector}", "no labels")
        _check_machine(num_gpus * num_workers, resources or {})
        return LocalEngine(imported_modules=imported_modules)
    from core_sdk._execution.workers.ray import RayEngine  # imports Ray

    return RayEngine(
        address,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        resources=resources,
        strategy=strategy,
        label_selector=label_selector,
    )


def _is_connected_to_ray() -> bool:
    ray: Any = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _check_machine(num_gpus: float, resources: Mapping[str, float]) -> None:
    if resources:
        raise _missing(", ".join(f"{amount:g} {name}" for name, amount in resources.items()), "no such resource")
    if num_gpus:
        import torch  # the workers load it, too

        if num_gpus > (there := torch.cuda.device_count()):
            raise _missing(f"{num_gpus:g} GPUs", f"{there}, and {os.cpu_count()} CPUs")


def _missing(asked: str, there: str) -> WorkerError:
    return WorkerError(f"the workers ask for {asked}; this machine has {there}. Start fewer, or ask for less.")
