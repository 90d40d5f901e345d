"""Checks the names, texts, labels and metadata that people write into records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from core_sdk._ground.records import check_name, check_text, to_json
from core_sdk.errors import TextChangedError


def checked_text(what: str, text: object) -> str:
    """Returns the text. Raises `TypeError` for anything else, and for what is not valid Unicode."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a string, not {type(text).__name__}")
    return check_text(what, text)


def check_unchanged(what: str, present: str, seen: str | None) -> None:
    """Raises `TextChangedError` if a text is no longer the one that was seen by whoever changes it now."""
    if seen is not None and seen != present:
        raise TextChangedError(what, present)


def checked_labels(labels: Iterable[str]) -> list[str]:
    """Returns the labels without repetition; a set of labels is sorted. Raises `InvalidNameError` or `TypeError`."""
    names = [check_name("the label", label) for label in _several("labels", labels)]
    return sorted(names) if isinstance(labels, Set) else list(dict.fromkeys(names))


def checked_keys(keys: Iterable[str]) -> list[str]:
    return [check_name("the metadata key", key) for key in _several("keys", keys)]


def checked_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata as JSON keeps it. Raises `TypeError` if it cannot."""
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict, not {type(metadata).__name__}")
    checked: dict[str, Any] = to_json(metadata, "metadata")
    return checked


def _several(what: str, texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError(f"{what} must be a list of strings, not the string {texts!r}")
    return list(texts)
