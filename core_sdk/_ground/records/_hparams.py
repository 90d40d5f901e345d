"""The configuration of a program as the hyperparameters of its trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core_sdk._ground.records._values import is_tagged, to_json


def with_given(config: dict[str, Any], hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration, in which the values that the trial got, for example by a search, take precedence."""
    recorded = recorded_config(config)
    changed = {name: value for name, value in hparams.items() if name not in recorded or recorded[name] != value}
    return {**config, **changed}


def merged_groups(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the hyperparameters of both, and of their groups; where both have a value, it is the second one. Pure."""
    merged = dict(first)
    for name, value in second.items():
        are_groups = _is_group(value) and _is_group(merged.get(name))
        merged[name] = merged_groups(merged[name], value) if are_groups else value
    return merged


def differing_values(
    first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yields the dotted name and both values of each hyperparameter that both have, with different values. Pure."""
    for name, value in first.items():
        other = second.get(name, value)
        if _is_group(value) and _is_group(other):
            yield from differing_values(value, other, f"{prefix}{name}.")
        elif value != other:
            yield f"{prefix}{name}", value, other


def _is_group(value: Any) -> bool:
    return isinstance(value, Mapping) and not is_tagged(value)


def recorded_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a configuration that the trial keeps as hyperparameters: the values that JSON can hold."""
    recorded = {}
    for name, value in config.items():
        try:
            recorded[name] = to_json(value, name)
        except (TypeError, ValueError):
            continue
    return recorded
