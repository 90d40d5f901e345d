"""Trains a Trial class without a script, as its experiment's configuration says."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from core_sdk._ground.environment import get_cluster_info
from core_sdk.loop import Batch, Epoch, Record, TrainUnit
from core_sdk.pytorch._context import run_of
from core_sdk.pytorch._init import init
from core_sdk.pytorch._trainer import Trainer
from core_sdk.pytorch._trial import PyTorchTrial
from core_sdk.pytorch._trial_class import TrialClassError, load_trial_class

_UNITS: Mapping[str, type[TrainUnit]] = {"batches": Batch, "epochs": Epoch, "records": Record}


def train(spec: str) -> None:
    """Trains the class `module:Class` with the hyperparameters and the configuration of this attempt.

    Raises `TrialClassError`, or another `ValueError` for a configuration that only a script can follow.
    """
    info = get_cluster_info()
    if info is None or not info.trial.config:
        raise TrialClassError(
            spec,
            "a class has no configuration of its own. Submit one whose entrypoint it is: "
            "`core-sdk experiment create CONFIG DIRECTORY`",
        )
    config, hparams = info.trial.config, info.trial.hparams
    logging.basicConfig(level=logging.DEBUG if config.get("debug") else logging.INFO)
    trial_class, arguments = load_trial_class(spec), fit_arguments(config)
    if _is_of_deepspeed(trial_class):
        from core_sdk.pytorch import deepspeed

        with deepspeed.init(hparams=hparams, exp_conf=config) as engine_context:
            trial: Any = trial_class(engine_context)
            deepspeed.Trainer(trial, engine_context).fit(**arguments)
        return
    optimizations = config.get("optimizations", {})
    aggregation_frequency = optimizations.get("aggregation_frequency", 1)
    with init(hparams=hparams, exp_conf=config, aggregation_frequency=aggregation_frequency) as context:
        runtime = run_of(context).runtime
        runtime.averages_gradients = optimizations.get("average_aggregated_gradients", True)
        runtime.compresses_gradients = optimizations.get("gradient_compression", False)
        Trainer(trial_class(context), context).fit(**arguments)


def _is_of_deepspeed(trial_class: type[PyTorchTrial]) -> bool:
    """Returns whether it is a `DeepSpeedTrial`. Does not import DeepSpeed: such a class has imported it already."""
    deepspeed: Any = sys.modules.get("core_sdk.pytorch.deepspeed")
    return deepspeed is not None and issubclass(trial_class, deepspeed.DeepSpeedTrial)


def fit_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments for `Trainer.fit()` that a configuration determines.

    Has a `max_length` only if the searcher has a `max_time`; otherwise the Trainer asks the searcher. Raises
    `ValueError` for a `time_metric` that a Trainer cannot count.
    """
    arguments = {
        "validation_period": _period(config.get("min_validation_period")),
        "checkpoint_period": _period(config.get("min_checkpoint_period")),
        "checkpoint_policy": config.get("checkpoint_policy", "best"),
        "step_zero_validation": config.get("perform_initial_validation", False),
        "profiling_enabled": config.get("profiling", {}).get("enabled", False),
    }
    if scheduling_unit := config.get("scheduling_unit"):
        arguments["reporting_period"] = Batch(scheduling_unit)
    searcher = config.get("searcher", {})
    if (max_time := searcher.get("max_time")) is not None:
        arguments["max_length"] = _unit_of(searcher["time_metric"])(max_time)
    return arguments


def _period(period: int | Mapping[str, int] | None) -> TrainUnit | None:
    """Returns a period; a number counts batches. Returns None, only at the end, for None and for 0 of any unit."""
    if not isinstance(period, Mapping):
        return Batch(period) if period else None
    ((unit, value),) = period.items()
    return _UNITS[unit](value) if value else None


def _unit_of(time_metric: str) -> type[TrainUnit]:
    if time_metric not in _UNITS:
        raise ValueError(
            f"searcher.time_metric is {time_metric!r}: a Trial class without a script can count {', '.join(_UNITS)}. "
            "Write a script that calls `Trainer.fit(max_length=…)`"
        )
    return _UNITS[time_metric]
