"""Turns a configuration back into plain values and into YAML."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from core_sdk._ground.config._document import SCALARS
from core_sdk._ground.config.experiment import EnvironmentVariables, ExperimentConfig
from core_sdk._ground.config.hyperparameters import Const, HyperparameterSpace
from core_sdk._ground.config.lengths import Length
from core_sdk._ground.masking import MASK, masked_arguments, masked_command, masked_values
from core_sdk._ground.sections import Section


def to_mapping(config: ExperimentConfig) -> dict[str, Any]:
    """Returns the complete configuration as plain values, which load as the same configuration."""
    values: dict[str, Any] = _plain(config)
    return values


def to_yaml(config: ExperimentConfig) -> str:
    """Returns the complete configuration as YAML, which loads as the same configuration."""
    return yaml.dump(to_mapping(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def masked(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the plain values of a configuration as they are shown to people, without secrets.

    The values of all environment variables are masked, and what the rules of `masking` say.
    """
    shown, environment, entrypoint = masked_values(values), values.get("environment"), values.get("entrypoint")
    if isinstance(environment, dict) and "environment_variables" in environment:
        shown["environment"]["environment_variables"] = _without_values(environment["environment_variables"])
    if entrypoint is not None:
        shown["entrypoint"] = (
            masked_command(entrypoint) if isinstance(entrypoint, str) else masked_arguments(entrypoint)
        )
    return shown


def _without_values(variables: Any) -> Any:
    """Masks the values in a list of `NAME=VALUE`, or in such lists by the kind of device."""
    if isinstance(variables, dict):
        return {kind: _without_values(listed) for kind, listed in variables.items()}
    return [f"{variable.partition('=')[0]}={MASK}" for variable in variables]


def _plain(value: Any) -> Any:
    match value:
        case Length():
            return value.value if value.unit is None else {value.unit: value.value}
        case HyperparameterSpace():
            return {name: _plain(member) for name, member in value.members.items()}
        case Const(val) if not isinstance(val, dict | list) or val == {}:
            return val
        case EnvironmentVariables(cpu, cuda, rocm) if cpu == cuda == rocm:
            return list(cpu)
        case Section():
            tag = {value.__struct_config__.tag_field: value.__struct_config__.tag}
            fields = {name: _plain(item) for name, item in msgspec.structs.asdict(value).items() if item is not None}
            return fields if None in tag else tag | fields
        case list() | tuple():
            return [_plain(item) for item in value]
    return value


class _Dumper(yaml.SafeDumper):
    """Writes YAML in which a string has quotes if YAML 1.1 or 1.2 would read it as another type."""


for _tag, _pattern, _first in SCALARS:
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)
