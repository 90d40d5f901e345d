"""The trials of a search that have not ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

import msgspec

from core_sdk.search._events import (
    Event,
    SearchStarted,
    TrialClosed,
    TrialExitedEarly,
    TrialProgressed,
    ValidationCompleted,
)
from core_sdk.search._operations import Close, Create, Operation, Pause, Stop, ValidateAfter


class OpenTrial(msgspec.Struct, gc=False):
    """The state of a trial that has not ended: the operations that it got, and what it has reported."""

    progress: float = 0.0
    length: float = -1.0
    """The length of its newest report; less than 0 before the first report, which may be at 0, before the training."""
    ordered: int | None = None
    """The length to which it was last told to train; None if it trains as its script wants."""
    is_idle: bool = False
    """Whether it has completed its last `ValidateAfter` and got no other since."""
    is_stopped: bool = False
    is_closing: bool = False
    has_exited: bool = False
    is_heard: bool = False
    """Whether it has ever reported all that the search needs."""
    num_overdue: int = 0
    """The number of its reports without the metric at lengths at which all others had begun to report it."""

    @property
    def was_asked_to_end(self) -> bool:
        return self.is_stopped or self.is_closing or self.has_exited


class OpenTrials:
    """Decides which events still matter, and pauses trials that have nothing left to do."""

    def __init__(self, by_id: dict[UUID, OpenTrial]) -> None:
        self.by_id = by_id

    def concerns(self, event: Event) -> bool:
        """Returns whether a method must handle this event.

        Events are ignored after the trial has ended. Reports are ignored after the trial was stopped, and before it has
        trained as far as it was told to.
        """
        if isinstance(event, SearchStarted):
            return True
        if (trial := self.by_id.get(event.request_id)) is None:
            return False
        match event:
            case ValidationCompleted():
                if trial.is_stopped or trial.has_exited or trial.is_idle:
                    return False
                return trial.ordered is None or event.length is None or event.length >= trial.ordered
            case TrialExitedEarly():
                return not trial.has_exited
            case _:
                return True

    def answered(self, event: Event, operations: Iterable[Operation]) -> Iterator[Operation]:
        """Records an event and the operations that answer it. Yields these operations, and perhaps a `Pause`."""
        self._take_note_of_event(event)
        for operation in operations:
            self._take_note_of_operation(operation)
            yield operation
        if isinstance(event, ValidationCompleted):
            trial = self.by_id[event.request_id]
            if trial.is_idle and not trial.was_asked_to_end:
                yield Pause(event.request_id)
        elif isinstance(event, TrialClosed):
            del self.by_id[event.request_id]

    def _take_note_of_event(self, event: Event) -> None:
        match event:
            case TrialProgressed():
                self.by_id[event.request_id].progress = min(max(event.progress, 0.0), 1.0)
            case ValidationCompleted():
                trial = self.by_id[event.request_id]
                trial.is_idle = trial.ordered is not None
            case TrialExitedEarly():
                self.by_id[event.request_id].has_exited = True

    def _take_note_of_operation(self, operation: Operation) -> None:
        match operation:
            case Create():
                self.by_id[operation.request_id] = OpenTrial()
            case ValidateAfter():
                trial = self.by_id[operation.request_id]
                trial.ordered, trial.is_idle = operation.length, False
            case Stop():
                self.by_id[operation.request_id].is_stopped = True
            case Close():
                self.by_id[operation.request_id].is_closing = True
