"""What the driver tells each worker of the attempt that it is to execute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_sdk.train._configs import CheckpointConfig


@dataclass(frozen=True)
class Program:
    """One execution of a training function."""

    function: Callable[..., Any]
    config: Mapping[str, Any] | None
    datasets: Mapping[str, Any]
    datasets_to_split: frozenset[str]
    home: Path
    run_info: Path | None
    """None where each rank is told by its launcher."""
    spools: Mapping[int, Path]
    """By number of the node: what stands for the home on a node that does not see it."""
    experiment: str | None
    """The name that was given to it."""
    storage: str | None
    use_gpu: bool
    num_gpus: int
    """Of each worker."""
    checkpoint_config: CheckpointConfig
    log_level: str
    has_callbacks: bool


@dataclass(frozen=True)
class Returned:
    """How a worker's function has ended."""

    trial_id: int
    value: Any = None
    is_stopped: bool = False
    """Whether it ended because the training was asked to stop."""
    invalid_hp: str | None = None
    """The message of an `InvalidHP`."""
