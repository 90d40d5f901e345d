"""Searches whose trials do not train: each trial follows a curve, and a unit of training takes a unit of time."""

from __future__ import annotations

import bisect
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from core_sdk._ground.records import to_json
from core_sdk.search._events import (
    Event,
    ExitedReason,
    SearchStarted,
    TrialClosed,
    TrialCreated,
    TrialExitedEarly,
    ValidationCompleted,
)
from core_sdk.search._operations import Close, Create, Operation, Pause, Shutdown, Stop, ValidateAfter, Warn

Curve = Callable[[Create, int], Any]
"""Returns the metric that a trial reports after a length. Raises `TrialExit` if the trial ends early there."""


class TrialExit(Exception):
    def __init__(self, reason: ExitedReason) -> None:
        self.reason = reason
        super().__init__(reason.value)


class Answers(Protocol):
    """Answers the events of a simulation with operations, as a `Search` does."""

    def on(self, event: Event, /) -> list[Operation]: ...


@dataclass(slots=True)
class SimulatedTrial:
    create: Create
    length: int = 0
    """The length to which it has trained."""
    metric: Any = None
    """The last metric that was reported."""
    reason: ExitedReason | None = None


@dataclass
class Simulation:
    """The result of a simulated search."""

    trials: list[SimulatedTrial] = field(default_factory=list)
    warnings: list[Warn] = field(default_factory=list)
    duration: int = 0
    """The time from the first start to the last end, in units of one trial's training."""
    max_running: int = 0
    shutdown: Shutdown | None = None
    """The operation that ended the search; None if nothing was left to do, but the search did not end."""

    @property
    def num_units(self) -> int:
        """The units of training of all trials together."""
        return sum(trial.length for trial in self.trials)


def synthetic_curve(create: Create, length: int) -> float:
    """Returns a loss that falls towards a limit. The limit is random, and follows from the trial's request id."""
    limit = create.request_id.int / 2**128
    return float(limit + (1 - limit) * length**-0.5)


def simulate(
    search: Answers, curve: Curve = synthetic_curve, *, validations: Sequence[int], num_slots: int | None = None
) -> Simulation:
    """Runs a search to its end. `num_slots` is the number of trials that can train at the same time.

    A trial that gets no `ValidateAfter` reports at the lengths in `validations`, and ends at the last of them. `Stop`
    and `Pause` take effect at once.
    """
    return _Simulator(search, curve, validations, num_slots).run()


@dataclass(slots=True)
class _OpenTrial:
    """The state of a trial that has not ended."""

    trial: SimulatedTrial
    ordered: int | None = None
    is_queued: bool = False
    is_running: bool = False
    since: int = 0
    """The time at which it began to train towards its next report."""
    report: int = 0
    """The number of its next report. Reports that were planned earlier are ignored."""


class _Simulator:
    def __init__(self, search: Answers, curve: Curve, validations: Sequence[int], num_slots: int | None) -> None:
        self._search = search
        self._curve = curve
        self._validations = validations
        self._num_free = math.inf if num_slots is None else num_slots
        self._now = 0
        self._events: deque[Event] = deque([SearchStarted()])
        self._open: dict[UUID, _OpenTrial] = {}
        self._queue: deque[UUID] = deque()
        self._reports: list[tuple[int, int, UUID]] = []
        """A heap of the reports to come: the time, the report's number, the trial."""
        self._num_reports = 0
        self._num_running = 0
        self._result = Simulation()

    def run(self) -> Simulation:
        self._settle()
        while self._reports:
            self._now, number, request_id = heapq.heappop(self._reports)
            process = self._open.get(request_id)
            if process is not None and process.is_running and process.report == number:
                self._report(request_id, process)
                self._settle()
                if process.is_running:
                    self._train(request_id, process)
                    self._settle()
        self._result.duration = self._now
        return self._result

    def _settle(self) -> None:
        """Lets the search answer all events, and starts trials in the slots that are free."""
        while self._events:
            for operation in self._search.on(self._events.popleft()):
                self._act(operation)
            while not self._events and self._queue and self._num_free > 0:
                self._start(self._queue.popleft())

    def _start(self, request_id: UUID) -> None:
        if (process := self._open.get(request_id)) is None:
            return
        process.is_queued, process.is_running = False, True
        self._num_free -= 1
        self._num_running += 1
        self._result.max_running = max(self._result.max_running, self._num_running)
        self._train(request_id, process)

    def _train(self, request_id: UUID, process: _OpenTrial) -> None:
        """Plans the trial's next report, or ends the trial if there is none."""
        length = process.trial.length
        targets = self._validations if process.ordered is None else [process.ordered]
        if (index := bisect.bisect_right(targets, length)) == len(targets):
            self._end(request_id)
            return
        self._num_reports += 1
        process.report, process.since = self._num_reports, self._now
        heapq.heappush(self._reports, (self._now + targets[index] - length, process.report, request_id))

    def _report(self, request_id: UUID, process: _OpenTrial) -> None:
        trial = process.trial
        self._train_until_now(process)
        try:
            trial.metric = self._curve(trial.create, trial.length)
        except TrialExit as error:
            trial.reason = error.reason
            self._events.append(TrialExitedEarly(request_id, error.reason))
            self._end(request_id)
        else:
            self._events.append(ValidationCompleted(request_id, to_json(trial.metric, "the metric"), trial.length))

    def _act(self, operation: Operation) -> None:
        match operation:
            case Create(request_id):
                self._open[request_id] = _OpenTrial(SimulatedTrial(operation))
                self._result.trials.append(self._open[request_id].trial)
                self._events.append(TrialCreated(request_id))
                self._enqueue(request_id)
            case ValidateAfter(request_id, length):
                self._open[request_id].ordered = length
                self._enqueue(request_id)
            case Close(request_id):
                process = self._open[request_id]
                if not process.is_running and not process.is_queued:
                    self._end(request_id)
            case Stop(request_id):
                self._end(request_id)
            case Pause(request_id):
                self._free_slot(self._open[request_id])
            case Warn():
                self._result.warnings.append(operation)
            case Shutdown():
                self._result.shutdown = operation

    def _enqueue(self, request_id: UUID) -> None:
        process = self._open[request_id]
        if not process.is_running and not process.is_queued:
            process.is_queued = True
            self._queue.append(request_id)

    def _end(self, request_id: UUID) -> None:
        process = self._open.pop(request_id)
        self._free_slot(process)
        self._events.append(TrialClosed(request_id))

    def _free_slot(self, process: _OpenTrial) -> None:
        if process.is_running:
            self._train_until_now(process)
            process.is_running = False
            self._num_free += 1
            self._num_running -= 1

    def _train_until_now(self, process: _OpenTrial) -> None:
        process.trial.length += self._now - process.since
        process.since = self._now
