"""Several brackets of successive halving, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from core_sdk.search._halving._halving import Halving
from core_sdk.search._method import Method
from core_sdk.search._operations import Operation
from core_sdk.search._scores import Score


class Tournament(Method):
    """Runs brackets, each with its own trials. Places that one bracket cannot fill go to the others, in order."""

    def __init__(self, brackets: Sequence[Halving]) -> None:
        self._brackets = brackets
        self.max_trials = sum(bracket.max_trials for bracket in brackets)
        self.max_concurrent = sum(bracket.max_concurrent for bracket in brackets)

    @property
    def num_active(self) -> int:
        return sum(bracket.num_active for bracket in self._brackets)

    @property
    def lengths(self) -> list[int]:
        return sorted({length for bracket in self._brackets for length in bracket.lengths})

    @property
    def brackets(self) -> list[list[int]]:
        return [bracket.lengths for bracket in self._brackets]

    def bracket_of(self, request_id: UUID) -> int:
        return next(index for index, bracket in enumerate(self._brackets) if request_id in bracket)

    @property
    def num_compared(self) -> int:
        return sum(bracket.num_compared for bracket in self._brackets)

    def fill(self, num_free: int) -> Iterator[Operation]:
        for takes_all in (False, True):
            for bracket in self._brackets:
                num_before = bracket.num_active
                num_given = num_free if takes_all else min(bracket.max_concurrent - num_before, num_free)
                if num_given > 0:
                    yield from bracket.fill(num_given)
                    num_free -= bracket.num_active - num_before

    def validated(self, request_id: UUID, score: Score, length: float) -> Iterator[Operation]:
        return self._own(request_id).validated(request_id, score, length)

    def exited(self, request_id: UUID, is_invalid: bool) -> Iterator[Operation]:
        return self._own(request_id).exited(request_id, is_invalid)

    def closed(self, request_id: UUID, was_asked: bool) -> Iterator[Operation]:
        return self._own(request_id).closed(request_id, was_asked)

    def encode(self) -> Any:
        return [bracket.encode() for bracket in self._brackets]

    def decode(self, encoded: Any) -> None:
        for bracket, of_bracket in zip(self._brackets, encoded, strict=True):
            bracket.decode(of_bracket)

    def _own(self, request_id: UUID) -> Halving:
        return self._brackets[self.bracket_of(request_id)]
