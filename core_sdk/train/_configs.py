"""The configuration of a training: its workers, restarts, checkpoints, datasets and callbacks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from core_sdk._home.attempts.definition import Definition
from core_sdk._runtime.retention import CheckpointConfig
from core_sdk.train._checkpoint import Checkpoint

logger = logging.getLogger("core_sdk.train")

EngineName = Literal["local", "ray"]
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


@dataclass(frozen=True)
class ScalingConfig:
    """The workers of a training."""

    num_workers: int | tuple[int, int] = 1
    """`(least, most)` starts as many workers as there is room for. 0 runs the function in this process."""
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] | None = None
    """The default is one CPU, or one GPU with `use_gpu`. The resources of other names are Ray's."""
    placement_strategy: Strategy = "PACK"
    """The way in which Ray places the workers on its nodes."""
    accelerator_type: str | None = None
    """The accelerator that the nodes of the workers must have, by Ray's name, such as "A100"."""
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    """The labels that the nodes must have on a Ray cluster: of all workers, or a list with the labels of each."""
    elastic_resize_monitor_interval_s: float = 60.0
    """The interval at which to look for room for more workers."""
    engine: EngineName | None = None
    """The engine. None means Ray if this program is connected to a cluster or `address` is given, else this machine."""
    address: str | None = None
    """The address of a Ray cluster."""
    trainer_resources: Mapping[str, float] | None = field(default=None, kw_only=True)
    """Ray's name. It is not heeded, with a warning: this program drives the training."""

    def __post_init__(self) -> None:
        _warn_of_unheeded(self, {"trainer_resources": "this program drives the training"})
        least, most = self._range()
        if not (isinstance(least, int) and isinstance(most, int)) or not 0 <= least <= most or (least == 0 != most):
            raise ValueError(
                f"num_workers is {self.num_workers!r}; it must be a number of workers, (least, most), or 0 for this "
                "process"
            )
        for name, value, allowed in (
            ("placement_strategy", self.placement_strategy, get_args(Strategy)),
            ("engine", self.engine, (*get_args(EngineName), None)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
        if self.engine == "local" and self.address is not None:
            raise ValueError("engine='local' has no address: leave one of them out")
        for name, amount in (self.resources_per_worker or {}).items():
            if amount < 0:
                raise ValueError(f"resources_per_worker has {amount:g} {name}; give 0 or more")
        of_each = None if isinstance(self.label_selector, Mapping) else self.label_selector
        if of_each and len(of_each) != self.max_workers:
            raise ValueError(
                f"label_selector has {len(of_each)} entries for {self.max_workers} workers: give one for each, or one "
                "dict for all"
            )
        if self.use_gpu and self.num_gpus_per_worker == 0:
            raise ValueError("use_gpu=True, and resources_per_worker has no GPU: leave one of them out")
        if not self.use_gpu and (self.resources_per_worker or {}).get("GPU"):
            raise ValueError("resources_per_worker has GPUs, and use_gpu is False: pass use_gpu=True, or no GPU")

    def _range(self) -> tuple[int, int]:
        return self.num_workers if isinstance(self.num_workers, tuple) else (self.num_workers, self.num_workers)

    @property
    def min_workers(self) -> int:
        return self._range()[0]

    @property
    def max_workers(self) -> int:
        return self._range()[1]

    @property
    def elasticity_enabled(self) -> bool:
        return self.min_workers != self.max_workers

    @property
    def num_cpus_per_worker(self) -> float:
        return (self.resources_per_worker or {}).get("CPU", 0 if self.use_gpu else 1)

    @property
    def num_gpus_per_worker(self) -> float:
        given = self.resources_per_worker or {}
        return given.get("GPU", 1) if self.use_gpu else 0

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """The resources of each worker that are neither CPUs nor GPUs."""
        given = {name: value for name, value in (self.resources_per_worker or {}).items() if name not in ("CPU", "GPU")}
        # As Ray itself does: the node has 1 of it.
        return given | ({f"accelerator_type:{self.accelerator_type}": 0.001} if self.accelerator_type else {})

    @property
    def total_resources(self) -> dict[str, float]:
        """The resources that all workers ask for together, if there are as many as allowed."""
        each = {
            "CPU": self.num_cpus_per_worker,
            "GPU": self.num_gpus_per_worker,
            **self.additional_resources_per_worker,
        }
        return {name: amount * self.max_workers for name, amount in each.items() if amount}


@dataclass(frozen=True)
class FailureConfig:
    """The number of restarts after a worker has failed. A restart goes on from the newest good checkpoint."""

    max_failures: int = 0
    """-1 means no limit."""

    def __post_init__(self) -> None:
        if self.max_failures < -1:
            raise ValueError(f"max_failures is {self.max_failures}; it must be at least 0, or -1 for no limit")


@dataclass(frozen=True)
class LoggingConfig:
    """The lowest level of Core SDK's messages that the workers log."""

    log_level: str = "INFO"


@dataclass(frozen=True)
class DataConfig:
    """The names of the datasets that are divided among the workers. Each worker gets all of any other dataset."""

    datasets_to_split: Literal["all"] | Sequence[str] = "all"

    def is_split(self, name: str) -> bool:
        return self.datasets_to_split == "all" or name in self.datasets_to_split


class UserCallback:
    """A callback for the program that calls `fit()`. Override the methods that you need.

    `after_report` is called in another thread. With callbacks, the ranks wait for each other in every `report()`. An
    exception that a callback raises is logged, and the training goes on.
    """

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Called after each `report()`. `metrics` has the metrics of every worker, in the order of their ranks."""

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]) -> None:
        """Called after a worker has failed, before the training is started again or given up."""


@dataclass(frozen=True)
class RunConfig:
    """The name of a training, the storage of its checkpoints, and its other options."""

    name: str | None = None
    """The experiment of its trial; by default the name of the script."""
    storage_path: str | None = None
    """A directory, or the URL of a bucket, for checkpoints; by default they are in the home."""
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    sync_config: Any = None
    """Ray's name, as are the next two. They are not heeded, with a warning."""
    verbose: Any = None
    stop: Any = None
    callbacks: Sequence[UserCallback] = ()
    logging_config: LoggingConfig = field(default_factory=LoggingConfig)
    job_id: str | None = None
    """A name of this training. Each `fit()` with the same `job_id` goes on with the same trial."""
    seed: int | None = None
    """The seed of a new trial, as in `core.init()`; by default a random one."""
    trial_name: str | None = None
    """The name of a new trial, as in `core.init()`; by default a generated one."""
    labels: Sequence[str] | None = None
    """Words to find a new trial by, and its experiment."""
    notes: str | None = None
    """The notes of a new trial, in Markdown."""

    def __post_init__(self) -> None:
        Definition(trial_name=self.trial_name, labels=self.labels, notes=self.notes, seed=self.seed)  # checks them
        _warn_of_unheeded(
            self,
            {
                "sync_config": "a checkpoint is stored when report() returns",
                "verbose": "LoggingConfig(log_level=…) says what the workers log",
                "stop": "the function ends when it returns",
            },
        )
        # None stands for the default of these options.
        for name, default in (
            ("failure_config", FailureConfig),
            ("checkpoint_config", CheckpointConfig),
            ("logging_config", LoggingConfig),
            ("callbacks", tuple),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default())
        if foreign := [each for each in self.callbacks if not isinstance(each, UserCallback)]:
            raise TypeError(f"callbacks has a {type(foreign[0]).__name__}; a callback is a UserCallback")


def _warn_of_unheeded(config: ScalingConfig | RunConfig, options: Mapping[str, str]) -> None:
    """Warns of options that are given, and drops them, so that a copy of the configuration does not warn again."""
    for name, reason in options.items():
        if getattr(config, name) is not None:
            logger.warning("%s(%s=…) is not heeded: %s", type(config).__name__, name, reason)
            object.__setattr__(config, name, None)


@dataclass(frozen=True)
class TrainRunContext:
    """The training about which a callback is called."""

    trial_id: int
    run_config: RunConfig
    scaling_config: ScalingConfig
    train_loop_config: Mapping[str, Any] | None
