"""The values that the driver and its workers exchange about an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core_sdk._execution.agent.driving import DrivenTrial
from core_sdk._ground.environment import Environment
from core_sdk.train._configs import DataConfig, RunConfig, ScalingConfig


@dataclass(frozen=True)
class TrainingProgram:
    """The function and the configuration of a trainer."""

    function: Callable[..., Any]
    config: Mapping[str, Any] | None = None
    datasets: Mapping[str, Any] = field(default_factory=dict)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    run: RunConfig = field(default_factory=RunConfig)
    data: DataConfig = field(default_factory=DataConfig)
    backend: str | None = None
    timeout_s: float = 1800.0
    restored_trial_id: int | None = None
    """The trial with which `fit()` goes on; None if `run` decides."""

    @property
    def num_gpus(self) -> int:
        """The number of GPUs of each worker; 0 if it computes on the CPU."""
        return max(1, int(self.scaling.num_gpus_per_worker)) if self.scaling.use_gpu else 0

    def program(self, trial: DrivenTrial | None, spools: Mapping[int, Path] | None = None) -> Program:
        """Returns the program for the workers. `spools` has a spool for each node that does not see the home."""
        return Program(
            # The callbacks stay in this program.
            training=replace(self, run=replace(self.run, callbacks=())),
            has_callbacks=bool(self.run.callbacks),
            home=Environment.read().home if trial is None else trial.folder.home_root.absolute(),
            run_info=None if trial is None else trial.run_info_path,
            spools=spools or {},
        )


@dataclass(frozen=True)
class Program:
    """An execution of a training function, as the driver orders it from each worker."""

    training: TrainingProgram
    has_callbacks: bool
    home: Path
    run_info: Path | None
    """The run info of the ranks; None if a launcher gives each rank its own."""
    spools: Mapping[int, Path]
    """The spool of each node that does not see the home, by node rank."""


@dataclass(frozen=True)
class Returned:
    """The result of a worker's function."""

    trial_id: int
    value: Any = None
    is_stopped: bool = False
    """Whether it ended because the training was asked to stop."""
    invalid_hp: str | None = None
    """The message of an `InvalidHP`."""
