"""Checks the metadata that scripts give a checkpoint, and merges the metadata of several ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from core_sdk._ground.records import MAX_INT, from_json, to_json

STEPS = "steps_completed"


def checked_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    """Returns `metadata` itself if it is complete and JSON can keep it; else raises `ValueError` or `TypeError`."""
    if metadata is None or STEPS not in metadata:
        raise ValueError(f'metadata["{STEPS}"] is missing: pass {{"{STEPS}": …}}, the number of steps trained so far')
    steps_completed = to_json(metadata, "metadata")[STEPS]
    if type(steps_completed) is not int or not 0 <= steps_completed < MAX_INT:
        raise ValueError(f'metadata["{STEPS}"] is {metadata[STEPS]!r}; it must be an int, at least 0')
    return metadata


def plain_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns a copy of one rank's metadata, as it will be read back. Raises `TypeError` for what JSON cannot keep."""
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a {type(metadata).__name__}; it must be a dict")
    return dict(from_json(to_json(metadata, "metadata")))


def merge_metadata(parts: Sequence[dict[str, Any] | None]) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Returns the merged metadata of all ranks, and the ranks of each conflict: {"/optimizer/lr": (0, 2)}.

    Dicts are merged key by key, at every depth. Other values are equal if their JSON is: NaN equals NaN, 1, 1.0 and
    True differ, and lists are compared whole.
    """
    given = {rank: part for rank, part in enumerate(parts) if part is not None}
    conflicts: dict[str, tuple[int, ...]] = {}
    return _merge(given, "", conflicts) if given else {}, conflicts


def _merge(values: Mapping[int, Any], place: str, conflicts: dict[str, tuple[int, ...]]) -> Any:
    """Merges `values`, which are by rank and not empty, and adds to `conflicts`."""
    if all(isinstance(value, dict) for value in values.values()):
        keys = dict.fromkeys(key for value in values.values() for key in value)
        return {key: _merge(_under(key, values), f"{place}/{key}", conflicts) for key in keys}
    if len({_spelling(value) for value in values.values()}) > 1:
        conflicts[place] = tuple(values)
    return next(iter(values.values()))


def _under(key: str, values: Mapping[int, dict[str, Any]]) -> dict[int, Any]:
    return {rank: value[key] for rank, value in values.items() if key in value}


def _spelling(value: Any) -> bytes:
    return msgspec.json.encode(to_json(value, "metadata"), order="sorted")
