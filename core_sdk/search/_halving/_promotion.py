"""Asynchronous successive halving that pauses trials, and resumes those that turn out to be among the best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from sortedcontainers import SortedList

from core_sdk.search._halving._halving import Halving
from core_sdk.search._halving._rungs import Entry
from core_sdk.search._operations import Close, Operation
from core_sdk.search._scores import EXITED, Score, is_number


class PromotingHalving(Halving):
    """Trains each trial to the lowest rung, pauses it there, and trains the best 1/divisor of a rung to the next.

    A free place goes to the best paused trial of the highest rung from which a trial may be promoted, otherwise to a
    new trial. At the end the paused trials are closed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paused: list[SortedList[Entry]] = [SortedList() for _ in self._rungs]
        """The entries of the trials that are paused at each rung."""

    def fill(self, num_free: int) -> Iterator[Operation]:
        while num_free > 0 and (index := self._index_to_promote()) is not None:
            num_free -= 1
            yield self._promote(index)
        yield from super().fill(num_free)
        if self.num_active == 0 and not self._can_create and self._index_to_promote() is None:
            yield from self._close_paused()

    def validated(self, request_id: UUID, score: Score, length: float) -> Iterator[Operation]:
        trial = self.state.trials[request_id]
        index = len(trial.entries)
        self._enter(request_id, trial, score)
        trial.length, trial.score = length, score
        if index == len(self._rungs) - 1 or not is_number(score):
            yield Close(request_id)
        else:
            trial.state = "paused"
            self.state.num_active -= 1
            self._paused[index].add((*trial.entries[-1], request_id))

    def exited(self, request_id: UUID, is_invalid: bool) -> Iterator[Operation]:
        trial = self.state.trials[request_id]
        if trial.state == "paused":
            entry = (*trial.entries[-1], request_id)
            index = len(trial.entries) - 1
            self._paused[index].remove(entry)
            self._rungs[index].entries.remove(entry)
            trial.entries.pop()
            trial.state = "ended"
            self._enter(request_id, trial, EXITED)
        yield from super().exited(request_id, is_invalid)

    def closed(self, request_id: UUID, was_asked: bool) -> Iterator[Operation]:
        self.state.num_active -= self.state.trials[request_id].state == "running"
        yield from super().closed(request_id, was_asked)

    def decode(self, encoded: Any) -> None:
        super().decode(encoded)
        for request_id, trial in self.state.trials.items():
            if trial.state == "paused":
                self._paused[len(trial.entries) - 1].add((*trial.entries[-1], request_id))

    def _index_to_promote(self) -> int | None:
        """Returns the index of the highest rung of which a paused trial is among the best, or None."""
        for index in reversed(range(len(self._rungs) - 1)):
            num_best, paused = self._num_best(index), self._paused[index]
            if num_best and paused and paused[0] <= self._rungs[index].entries[num_best - 1]:
                return index
        return None

    def _promote(self, index: int) -> Operation:
        *_, request_id = self._paused[index].pop(0)
        self.state.trials[request_id].state = "running"
        self.state.num_active += 1
        return self._train_on(request_id)

    def _close_paused(self) -> Iterator[Operation]:
        for paused in self._paused:
            for *_, request_id in paused:
                self.state.trials[request_id].state = "ended"
                yield Close(request_id)
            paused.clear()
