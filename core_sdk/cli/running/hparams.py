"""Hyperparameters from the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer
import yaml

from core_sdk.records import to_json


def parse_hparams(assignments: Sequence[str]) -> dict[str, Any]:
    """Returns hyperparameters from `NAME=VALUE`, where VALUE is YAML: 0.1, true, [1, 2], adam."""
    hparams: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{assignment!r} is not NAME=VALUE", param_hint="--hparam")
        if name in hparams:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--hparam")
        hparams[name] = _parse(name, value)
    return hparams


def _parse(name: str, value: str) -> Any:
    try:
        parsed = yaml.safe_load(value)
        # In YAML 1.1 a float needs a point: 1e-4 would be a text.
        return float(parsed) if isinstance(parsed, str) and _is_float(parsed) else to_json(parsed, name)
    except (yaml.YAMLError, TypeError) as error:
        raise typer.BadParameter(f"the value of {name!r} is {value!r}: {error}", param_hint="--hparam") from error


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return re.match(r"[+-]?\d", text) is not None
