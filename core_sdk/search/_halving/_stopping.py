"""Asynchronous successive halving that stops trials."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from core_sdk.search._halving._halving import Halving, RungTrial
from core_sdk.search._operations import Operation, Stop
from core_sdk.search._scores import Score, is_number


class StoppingHalving(Halving):
    """Lets trials run, and stops each one that is not among the best 1/divisor of a rung.

    At least one trial of a rung counts as among the best. A trial that has passed a rung is still stopped if others
    displace it from the best before it has reached the next rung, so that the first trials of a rung have no advantage.
    If a trial did not report at the rung itself, its metric there is interpolated between its reports on both sides, so
    that all are compared at the same length.
    """

    def validated(self, request_id: UUID, score: Score, length: float) -> Iterator[Operation]:
        trial = self.state.trials[request_id]
        while trial.state == "running" and self._rungs[len(trial.entries)].length <= length:
            at_rung = _interpolated(trial, score, length, self._rungs[len(trial.entries)].length)
            yield from self._compare(request_id, trial, at_rung)
        trial.length, trial.score = length, score
        if self._orders and trial.state == "running":
            yield self._train_on(request_id)

    def exited(self, request_id: UUID, is_invalid: bool) -> Iterator[Operation]:
        yield from super().exited(request_id, is_invalid)
        self.state.trials[request_id].state = "ended"

    def closed(self, request_id: UUID, was_asked: bool) -> Iterator[Operation]:
        self.state.num_active -= 1
        yield from super().closed(request_id, was_asked)

    def _compare(self, request_id: UUID, trial: RungTrial, score: Score) -> Iterator[Operation]:
        index = len(trial.entries)
        entries = self._rungs[index].entries
        rank = self._enter(request_id, trial, score)
        num_best = max(self._num_best(index), 1)
        if index == len(self._rungs) - 1 or rank >= num_best or not is_number(score):
            yield self._stop(request_id, trial)
        elif num_best < len(entries):
            *_, displaced_id = entries[num_best]
            displaced = self.state.trials[displaced_id]
            if displaced.state == "running" and len(displaced.entries) == index + 1:
                yield self._stop(displaced_id, displaced)

    def _stop(self, request_id: UUID, trial: RungTrial) -> Operation:
        trial.state = "ended"
        return Stop(request_id)


def _interpolated(trial: RungTrial, score: Score, length: float, at: float) -> Score:
    """Returns the score at a length between the trial's newest report and this one.

    If one of the two metrics was not a finite number, returns the score of this report.
    """
    if not (is_number(trial.score) and is_number(score)):
        return score
    (kind, before), (_, now) = trial.score, score
    return (kind, before + (now - before) * (at - trial.length) / (length - trial.length))
