"""Hyperparameters from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer


def parse_hparams(assignments: Sequence[str]) -> dict[str, Any]:
    """Returns hyperparameters from `NAME=VALUE`, where VALUE is YAML as in a configuration: 0.1, true, [1, 2], adam."""
    hparams: dict[str, Any] = {}
    for assignment in assignments:
        from core_sdk.config import parse_value

        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{assignment!r} is not NAME=VALUE", param_hint="--hparam")
        if name in hparams:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--hparam")
        hparams[name] = parse_value(value, f"--hparam {assignment}")
    return hparams
