"""The configuration of a program as the hyperparameters of its trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_sdk.records._values import to_json


def with_given(config: dict[str, Any], hparams: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, with the values instead that the trial was started with, by a search for example. Pure."""
    recorded = recorded_config(config)
    changed = {name: value for name, value in hparams.items() if name not in recorded or recorded[name] != value}
    return {**config, **changed}


def recorded_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a configuration the trial keeps as hyperparameters: the values that JSON has. Pure."""
    recorded = {}
    for name, value in config.items():
        try:
            recorded[name] = to_json(value, name)
        except (TypeError, ValueError):
            continue
    return recorded
