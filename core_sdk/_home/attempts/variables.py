"""The environment variables that an experiment's configuration gives its trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def configured_variables(config: Mapping[str, Any], *, has_gpus: bool) -> dict[str, str]:
    """Returns the `environment.environment_variables` of an experiment's configuration.

    They are a list of `NAME=value`, or such lists by device (`cuda` and `cpu`).
    """
    return dict(_assignments((config.get("environment") or {}).get("environment_variables"), has_gpus))


def _assignments(given: Any, has_gpus: bool) -> Iterator[tuple[str, str]]:
    if isinstance(given, Mapping):
        given = given.get("cuda" if has_gpus else "cpu")
    for assignment in given or ():
        name, _, value = assignment.partition("=")
        yield name, value
