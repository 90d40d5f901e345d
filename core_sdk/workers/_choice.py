"""Which engine a program's workers run on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Literal

from core_sdk.workers._engine import Engine
from core_sdk.workers.local import LocalEngine


def open_engine(
    engine: Literal["local", "ray"] | Engine | None,
    *,
    num_cpus: float = 1,
    num_gpus: float = 0,
    resources: Mapping[str, float] | None = None,
    log_path: str | os.PathLike[str] | None = None,
) -> Engine:
    """The engine of this name; with None that of Ray if the program has called `ray.init()`, otherwise the local one.

    The amounts are those of one worker; only Ray counts them. Raises `MissingDependencyError` without Ray, `ValueError`
    for another name.
    """
    if isinstance(engine, Engine):
        return engine
    if engine not in ("local", "ray", None):
        raise ValueError(f"engine is {engine!r}; it must be 'local', 'ray' or None")
    if engine == "local" or (engine is None and not _is_ray_initialized()):
        return LocalEngine(log_path=log_path)
    from core_sdk.workers.ray import RayEngine  # an optional library

    return RayEngine(num_cpus=num_cpus, num_gpus=num_gpus, resources=resources, log_path=log_path)


def _is_ray_initialized() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()
