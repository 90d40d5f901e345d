"""The base of both forms of asynchronous successive halving (ASHA): trials on rungs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec

from core_sdk.search._halving._rungs import Rung
from core_sdk.search._method import CountingMethod, Counts
from core_sdk.search._operations import Operation, ValidateAfter, Warn
from core_sdk.search._points import Points
from core_sdk.search._scores import EXITED, Score


class RungTrial(msgspec.Struct, gc=False):
    """A trial, and its entries in the rungs that it has reached."""

    state: Literal["running", "paused", "ended"] = "running"
    entries: list[tuple[int, float, int]] = []
    """The trial's score and entry number on each rung that it has reached, from the lowest rung."""
    length: float = 0
    score: Score = EXITED
    """The score of the newest report, which was at `length`."""


class HalvingState(Counts):
    trials: dict[UUID, RungTrial] = {}
    num_entries: int = 0


class Halving(CountingMethod[HalvingState]):
    """Compares trials at rungs, whose lengths grow by the divisor, and trains only the best of a rung to the next."""

    def __init__(
        self,
        points: Points,
        max_trials: int,
        max_concurrent: int,
        *,
        lengths: Sequence[int],
        divisor: float,
        orders: bool,
        replaces: bool,
    ) -> None:
        """`lengths` are the rungs'. With `orders`, the search tells each trial to train from rung to rung."""
        super().__init__(HalvingState(), points, max_trials, max_concurrent, replaces=replaces)
        self._rungs = [Rung(length) for length in lengths]
        self._divisor = divisor
        self._orders = orders

    @property
    def lengths(self) -> list[int]:
        return [rung.length for rung in self._rungs]

    @property
    def num_compared(self) -> int:
        return len(self._rungs[0].entries)

    def __contains__(self, request_id: UUID) -> bool:
        return request_id in self.state.trials

    def exited(self, request_id: UUID, is_invalid: bool) -> Iterator[Operation]:
        """Ranks a failed trial last on the rung that it trained for, and removes an invalid one from all rungs."""
        yield from super().exited(request_id, is_invalid)
        trial = self.state.trials[request_id]
        if is_invalid:
            self._withdraw(request_id, trial)
            self._points.observe(request_id, len(self._rungs) - 1, EXITED)
        elif trial.state == "running" and len(trial.entries) < len(self._rungs):
            self._enter(request_id, trial, EXITED)

    def closed(self, request_id: UUID, was_asked: bool) -> Iterator[Operation]:
        trial = self.state.trials[request_id]
        if not was_asked:
            reached, wanted = trial.length, self._rungs[len(trial.entries)].length
            yield Warn(
                "ended_early",
                f"a trial has ended at length {reached:g}, before {wanted}, where it would have been compared with "
                f"others. Let the script train until {self._rungs[-1].length}, or lower this number for the searcher.",
                request_id,
            )
        trial.state = "ended"

    def decode(self, encoded: Any) -> None:
        super().decode(encoded)
        for request_id, trial in self.state.trials.items():
            for rung, entry in zip(self._rungs, trial.entries, strict=False):
                rung.entries.add((*entry, request_id))

    def _create(self) -> Iterator[Operation]:
        create = self._next_point()
        self.state.trials[create.request_id] = RungTrial()
        yield create
        if self._orders:
            yield self._train_on(create.request_id)

    def _train_on(self, request_id: UUID) -> Operation:
        """Tells a trial to train to the next rung."""
        return ValidateAfter(request_id, self._rungs[len(self.state.trials[request_id].entries)].length)

    def _num_best(self, index: int) -> int:
        """Returns the number of trials that are the best 1/divisor of a rung."""
        return int(len(self._rungs[index].entries) // self._divisor)

    def _enter(self, request_id: UUID, trial: RungTrial, score: Score) -> int:
        """Puts a trial into the next rung, and returns its rank there."""
        index = len(trial.entries)
        entries = self._rungs[index].entries
        self._points.observe(request_id, len(self._rungs) - 1 - index, score)
        entry = (*score, self.state.num_entries)
        self.state.num_entries += 1
        trial.entries.append(entry)
        rank = entries.bisect_left((*entry, request_id))
        entries.add((*entry, request_id))
        return int(rank)

    def _withdraw(self, request_id: UUID, trial: RungTrial) -> None:
        """Takes a trial out of all rungs."""
        for rung, entry in zip(self._rungs, trial.entries, strict=False):
            rung.entries.remove((*entry, request_id))
        trial.entries.clear()
