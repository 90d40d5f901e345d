"""The summary of a run: its newest values, and what the script sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core_sdk.compat.wandb._named_values import NamedValues


class Summary(NamedValues):
    """Values by name, also as attributes. What the script sets is recorded at once, in the group "summary"."""

    _called = "summary"

    def __init__(self, record: Callable[[Mapping[str, Any]], object]) -> None:
        self._values: dict[str, Any] = {}
        self._record = record

    def heed(self, values: Mapping[str, Any]) -> None:
        """Takes the values that were logged, which are recorded already."""
        self._values.update(values)

    def update(self, values: Any = None, **more: Any) -> None:  # type: ignore[override]
        given = {**dict(values or {}), **more}
        if given:
            self._record(given)
        self._values |= given

    def __delitem__(self, name: str) -> None:
        self.update({name: None})
        del self._values[name]
