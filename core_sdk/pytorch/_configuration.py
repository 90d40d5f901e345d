"""Reads the arguments of `Trainer.fit()` from an experiment's configuration, for a Trial class without a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_sdk.loop import Batch, Epoch, Record, TrainUnit

_UNITS: Mapping[str, type[TrainUnit]] = {"batches": Batch, "epochs": Epoch, "records": Record}


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
