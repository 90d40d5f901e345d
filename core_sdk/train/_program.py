"""The values that the driver and its workers exchange about an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_sdk.runtime.retention import CheckpointConfig


@dataclass(frozen=True)
class Program:
    """An execution of a training function, as the driver orders it from each worker."""

    function: Callable[..., Any]
    config: Mapping[str, Any] | None
    datasets: Mapping[str, Any]
    datasets_to_split: frozenset[str]
    home: Path
    run_info: Path | None
    """None if a launcher gives each rank its run info."""
    spools: Mapping[int, Path]
    """The spool of each node that does not see the home, by node rank."""
    experiment: str | None
    """The name that the user gave the experiment, if any."""
    storage: str | None
    seed: int | None
    num_gpus: int
    """The number of GPUs of each worker; 0 if it computes on the CPU."""
    checkpoint_config: CheckpointConfig
    log_level: str
    has_callbacks: bool


@dataclass(frozen=True)
class Returned:
    """The result of a worker's function."""

    trial_id: int
    value: Any = None
    is_stopped: bool = False
    """Whether it ended because the training was asked to stop."""
    invalid_hp: str | None = None
    """The message of an `InvalidHP`."""
