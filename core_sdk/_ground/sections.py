"""The base of all parts of a configuration."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, ClassVar

import msgspec


class Section(msgspec.Struct, frozen=True):
    """A map of a configuration file: its fields are the map's keys, with their types, limits and descriptions.

    Raises `InvalidSectionError` where fields contradict each other. Types are checked where the file is read.
    """

    ignored: ClassVar[Mapping[str, str]] = {}
    """Keys that are accepted without effect, each with the reason."""

    refused: ClassVar[Mapping[str, str]] = {}
    """Keys of the predecessor that cannot be honoured, each with the reason."""

    alternatives: ClassVar[Mapping[tuple[str, ...], str]] = {}
    """Fields of which one must be given, each time with what is wrong without any."""

    def __post_init__(self) -> None:
        if problems := tuple(self._contradictions()):
            raise InvalidSectionError(problems)

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        """Yields the fields that contradict others, each with what is wrong with it."""
        given = {name for name in self.__struct_fields__ if getattr(self, name) is not None}
        yield from self.without_alternative(given)

    @classmethod
    def without_alternative(cls, given: Container[str]) -> Iterator[tuple[str, str]]:
        """Yields the first of the fields of which one must be given and none is, with what is wrong."""
        for names, problem in cls.alternatives.items():
            if not any(name in given for name in names):
                yield names[0], problem


def about(description: str, **limits: Any) -> msgspec.Meta:
    """Returns the metadata of an annotated type: what a field means, and its limits."""
    return msgspec.Meta(description=description, **limits)


class InvalidSectionError(ValueError):
    """Fields of a section contradict each other. `problems` has their keys, each with what is wrong with it."""

    def __init__(self, problems: tuple[tuple[str, str], ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{key} {problem}" for key, problem in problems))
