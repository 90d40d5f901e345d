"""Values by name, which are also attributes: the form of a run's configuration and of its summary."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, MutableMapping
from typing import Any, ClassVar


class NamedValues(MutableMapping[str, Any]):
    _called: ClassVar[str]
    """The word for it in messages."""
    _values: dict[str, Any]

    @abstractmethod
    def update(self, values: Any = None, **more: Any) -> None:  # type: ignore[override]
        """Adds values, and records them."""

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        names = ", ".join(self.__dict__.get("_values", {})) or "nothing"
        raise AttributeError(f"the {self._called} has no {name!r}; it has {names}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self[name] = value
