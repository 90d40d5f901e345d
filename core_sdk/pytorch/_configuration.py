"""What an experiment's configuration says to the Trainer of a Trial class that has no script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_sdk.loop import Batch, Epoch, Record, TrainUnit

_UNITS: Mapping[str, type[TrainUnit]] = {"batches": Batch, "epochs": Epoch, "records": Record}


def fit_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration says to `Trainer.fit()`, which asks the searcher itself for a `max_length`.

    Raises `ValueError` for a length whose unit a script would decide.
    """
    arguments = {
        "validation_period": _period(config, "min_validation_period"),
        "checkpoint_period": _period(config, "min_checkpoint_period"),
        "checkpoint_policy": config.get("checkpoint_policy", "best"),
        "step_zero_validation": config.get("perform_initial_validation", False),
        "profiling_enabled": config.get("profiling", {}).get("enabled", False),
    }
    if scheduling_unit := config.get("scheduling_unit"):
        arguments["reporting_period"] = Batch(scheduling_unit)
    if (max_length := _max_length(config.get("searcher", {}))) is not None:
        arguments["max_length"] = max_length
    return arguments


def _period(config: Mapping[str, Any], key: str) -> TrainUnit | None:
    """None, or 0 of any unit, is only at the end."""
    period = config.get(key) or None
    if period is None:
        return None
    if not isinstance(period, Mapping):
        raise ValueError(f"{key} is {period!r} and has no unit; without a script write {{batches: {period}}}, say")
    ((unit, value),) = period.items()
    return _UNITS[unit](value) if value else None


def _max_length(searcher: Mapping[str, Any]) -> TrainUnit | None:
    """Where the top rung is; None where the searcher says step by step how long to train."""
    max_length, max_time = searcher.get("max_length"), searcher.get("max_time")
    if isinstance(max_length, int):
        raise ValueError(
            f"searcher.max_length is {max_length} and has no unit; without a script write {{epochs: {max_length}}}, say"
        )
    if max_time is None:
        return None
    time_metric = searcher["time_metric"]
    if time_metric not in _UNITS:
        raise ValueError(
            f"searcher.time_metric is {time_metric!r}: a Trial class without a script can count {', '.join(_UNITS)}. "
            "Write a script that calls `Trainer.fit(max_length=…)`"
        )
    return _UNITS[time_metric](max_time)
