"""Ray's label selectors: which labels a node must have."""

from __future__ import annotations

from collections.abc import Mapping


def matches_labels(labels: Mapping[str, str], selectors: Mapping[str, str]) -> bool:
    """Returns whether a node with these labels fits `VALUE`, `!VALUE`, `in(A,B)` or `!in(A,B)` for each name."""
    return all(_matches(labels.get(name), selector) for name, selector in selectors.items())


def _matches(value: str | None, selector: str) -> bool:
    wanted = selector.removeprefix("!")
    is_list = wanted.startswith("in(") and wanted.endswith(")")
    values = [each.strip() for each in wanted[3:-1].split(",")] if is_list else [wanted]
    return (value in values) != selector.startswith("!")
