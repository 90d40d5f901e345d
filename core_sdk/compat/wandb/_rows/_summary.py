"""The summary of a run: its newest values, and what the script sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any


class Summary(MutableMapping[str, Any]):
    """Values by name, also as attributes. What the script sets is recorded at once, in the group "summary"."""

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

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        self.update({name: None})
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        raise AttributeError(f"the summary has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self[name] = value
