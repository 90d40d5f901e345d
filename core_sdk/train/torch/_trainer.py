"""A trainer that executes a function on several workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core_sdk._ground.environment import Environment
from core_sdk.errors import TrialNotFoundError
from core_sdk.train._configs import DataConfig, RunConfig, ScalingConfig
from core_sdk.train._driver.fitting import fit
from core_sdk.train._program import TrainingProgram
from core_sdk.train._result import Result, find_trial
from core_sdk.train._worker.running import takes_config


@dataclass(frozen=True)
class TorchConfig:
    """The options with which torch.distributed is set up."""

    backend: str | None = None
    """The default is NCCL together with Gloo with `use_gpu`, otherwise Gloo."""
    timeout_s: float = 1800.0
    """The time that a collective may take."""


class TorchTrainer:
    """Executes a function on several workers, each with torch.distributed set up.

    def train_func(config):
        model = core_sdk.train.torch.prepare_model(make_model())
        ...
        core_sdk.train.report({"loss": loss}, checkpoint=checkpoint)

    trainer = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2))
    result = trainer.fit()
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
    ) -> None:
        """The function takes nothing, or `train_loop_config`, whose values become the trial's hyperparameters.

        Raises `TypeError` for what is no function or no dict, and `ValueError` for a function that takes more.
        """
        if not callable(train_loop_per_worker):
            raise TypeError(f"train_loop_per_worker is {train_loop_per_worker!r}; it must be a function")
        if train_loop_config is not None and not isinstance(train_loop_config, Mapping):
            raise TypeError(f"train_loop_config must be a dict, not {type(train_loop_config).__name__}")
        takes_config(train_loop_per_worker)
        torch_config = torch_config or TorchConfig()
        self._training = TrainingProgram(
            function=train_loop_per_worker,
            config=train_loop_config,
            datasets=dict(datasets or {}),
            scaling=scaling_config or ScalingConfig(),
            run=run_config or RunConfig(),
            data=dataset_config or DataConfig(),
            backend=torch_config.backend,
            timeout_s=torch_config.timeout_s,
        )

    def fit(self) -> Result:
        """Trains as a trial of the home, and returns when the function has ended on all workers.

        In a process that an agent or a master has started for a trial, the first `fit()` is that trial. When a worker
        fails or dies, a new attempt goes on from the newest good checkpoint, as often as the `FailureConfig` allows;
        then this raises `TrainingFailedError`. Ctrl-C cancels the trial, and SIGTERM asks it to stop.
        """
        return fit(self._training)

    @classmethod
    def restore(
        cls,
        path: str | Path,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None = None,
        train_loop_config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> TorchTrainer:
        """Returns a trainer whose `fit()` goes on with a trial, also one that is completed, from its newest checkpoint.

        `path` is one that `Result.from_path()` takes. The function and its options are given again, as they are not
        kept. `RunConfig(job_id=…)` does the same without a path. Raises `TrialNotFoundError`, `ValueError` for a trial
        of another home, or `TypeError` without a function.
        """
        trial = find_trial(path)
        if trial.home_root.resolve() != (home := Environment.read().home).resolve():
            raise ValueError(
                f"trial {trial.trial_id} of {path} is not of the home {home}: set CORE_SDK_HOME to its home"
            )
        if train_loop_per_worker is None:
            raise TypeError("restore() needs the function, which is not kept: pass train_loop_per_worker=")
        trainer = cls(train_loop_per_worker, train_loop_config=train_loop_config, **options)
        trainer._training = replace(trainer._training, restored_trial_id=trial.trial_id)
        return trainer

    @classmethod
    def can_restore(cls, path: str | Path) -> bool:
        """Returns whether there is a trial with which `restore()` can go on."""
        try:
            find_trial(path)
        except TrialNotFoundError:
            return False
        return True
