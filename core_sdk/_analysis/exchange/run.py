"""A run that another tool has recorded, as its reader tells of it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from core_sdk._ground.records import MAX_DEPTH, Outcome

Row = tuple[float, int, dict[str, Any]]
"""The time in seconds since 1970, the step, and values by the tool's names: numbers, texts and `Media`."""

RESTART: dict[str, Any] = {}
"""The values of a row that is a restart: the rows before it are hidden from its step on."""
_MAX_APART_S = 1.0
_MAX_PARSED_CHARS = 1000


@dataclass
class ForeignRun:
    """A run of another tool. What a reader learns only from the rows is complete when these have been read."""

    key: str
    """A name of the run that no other run has, and that stays when its files are moved."""
    where: str
    """The place of the run, for messages."""
    experiment: str
    name: str = ""
    created: float | None = None
    """The time at which it began; None stands for the time of its first row."""
    host: str = ""
    hparams: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    notes: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    """What else the tool has recorded of the run as a whole."""
    outcome: Outcome = "completed"
    error: str | None = None
    ended: float | None = None
    """The time at which it ended; None stands for the time of its last row."""
    losses: list[str] = field(default_factory=list)
    """What could not be read, in sentences without a full stop."""
    rows: Iterable[Row] = ()
    """The rows in the order in which they were recorded. They can be read once, and take little memory."""


def rows_of(points: Iterable[tuple[float, int, str, Any]]) -> Iterator[Row]:
    """Joins consecutive values of one step that were recorded within a second.

    A point is a row with one value, or the value `RESTART`, which stays a row of its own.
    """
    began, at_step = 0.0, 0
    values: dict[str, Any] = {}
    for at, step, name, value in points:
        if value is RESTART or step != at_step or name in values or not 0 <= at - began <= _MAX_APART_S:
            if values:
                yield began, at_step, values
            began, at_step, values = at, step, {}
        if value is RESTART:
            yield at, step, RESTART
        else:
            values[name] = value
    if values:
        yield began, at_step, values


def flat(values: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields values by names in which slashes stand for nested mappings. Raises `ValueError` if these are too deep."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    for name, value in values.items():
        if isinstance(value, Mapping) and "_type" not in value:
            yield from flat(value, f"{prefix}{name}/", depth + 1)
        else:
            yield prefix + name, value


def parsed(text: str) -> Any:
    """Returns the number, bool, None, list or dict that a text spells in Python; the text itself if it is another."""
    if len(text) > _MAX_PARSED_CHARS:
        return text
    try:
        with warnings.catch_warnings(action="ignore"):
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if value is None or isinstance(value, (bool, int, float, list, tuple, dict)) else text
