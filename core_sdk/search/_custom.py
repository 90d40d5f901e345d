"""Search methods that users write, with the interface of `determined` 0.37."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from core_sdk._ground.decoding import convert, json_decoder
from core_sdk.search._events import (
    Event,
    ExitedReason,
    SearchStarted,
    TrialClosed,
    TrialCreated,
    TrialExitedEarly,
    TrialProgressed,
    ValidationCompleted,
)
from core_sdk.search._operations import Close, Create, Operation, Progress, Shutdown, Stop, ValidateAfter
from core_sdk.search._trials import OpenTrial, OpenTrials

_STATE_FILE = "state"
_TRIALS_FILE = "trials.json"


class SearcherState(msgspec.Struct, rename="camel"):
    """The state of a search's trials. A `SearchMethod` only reads it."""

    failures: set[UUID] = set()
    """Trials that have failed."""
    trial_progress: dict[UUID, float] = {}
    """The progress of each trial, in units of its lengths."""
    trials_closed: set[UUID] = set()
    trials_created: set[UUID] = set()
    last_event_id: int | None = None
    """The newest event that was answered."""
    experiment_id: int | None = None
    experiment_completed: bool = False
    experiment_failed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the state as JSON values."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    def from_dict(self, d: dict[str, Any]) -> None:
        """Sets the state to values that `to_dict` has returned."""
        for name, value in msgspec.structs.asdict(convert(d, SearcherState)).items():
            setattr(self, name, value)


class SearchMethod(ABC):
    """Decides which trials there are, and how far each is trained. Subclass it, and return operations.

    A trial begins with `Create`. With `ValidateAfter`, its script gets a length from `searcher.operations()`. A trial
    that has completed its length is paused until it gets another one or a `Close`. A trial without any `ValidateAfter`
    trains as its script wants, and the method is told of each validation. `Shutdown` ends the search.
    """

    @abstractmethod
    def initial_operations(self, searcher_state: SearcherState) -> list[Operation]:
        """Returns the first operations of the search."""

    @abstractmethod
    def on_trial_created(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        """Called when a trial exists that `Create` asked for."""

    @abstractmethod
    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: UUID, metric: Any, train_length: int
    ) -> list[Operation]:
        """Called when a trial has reported `metric` after training until `train_length`."""

    @abstractmethod
    def on_trial_closed(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        """Called when a trial has ended. No event of this trial follows."""

    @abstractmethod
    def progress(self, searcher_state: SearcherState) -> float:
        """Returns the progress of the search, from 0 to 1."""

    @abstractmethod
    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: UUID, exited_reason: ExitedReason
    ) -> list[Operation]:
        """Called when a trial has ended before its training was complete. `on_trial_closed` follows."""

    @abstractmethod
    def save_method_state(self, path: Path) -> None:
        """Writes all that the method needs to continue into files in this directory."""

    @abstractmethod
    def load_method_state(self, path: Path) -> None:
        """Reads what `save_method_state` has written."""

    def save(self, searcher_state: SearcherState, path: Path, *, experiment_id: int) -> None:
        """Writes the states of the search and of the method into this directory."""
        state = searcher_state.to_dict() | {"experimentId": experiment_id}
        (path / _STATE_FILE).write_text(json.dumps(state))
        self.save_method_state(path)

    def load(self, path: Path) -> tuple[SearcherState, int]:
        """Reads what `save` has written; returns the state of the search, and the experiment's id."""
        searcher_state = SearcherState()
        searcher_state.from_dict(json.loads((path / _STATE_FILE).read_text()))
        self.load_method_state(path)
        return searcher_state, searcher_state.experiment_id or 0


class CustomSearch:
    """A search by a user's own method, which is driven in the same way as a `Search`."""

    def __init__(self, method: SearchMethod) -> None:
        self.method = method
        self.state = SearcherState()
        self._trials = OpenTrials({})

    def on(self, event: Event) -> list[Operation]:
        """Returns the operations that follow from the event. Events of trials that have ended are ignored.

        Raises `TypeError` or `ValueError` for an answer that cannot be carried out.
        """
        if self.state.experiment_completed or not self._trials.concerns(event):
            return []
        return list(self._trials.answered(event, self._checked(self._decide(event))))

    def save(self, path: Path) -> None:
        """Writes all that `load` needs into files in this directory."""
        (path / _TRIALS_FILE).write_bytes(msgspec.json.encode(self._trials.by_id))
        self.method.save(self.state, path, experiment_id=self.state.experiment_id or 0)

    def load(self, path: Path) -> None:
        """Restores the state that `save` has written."""
        by_id = json_decoder(dict[UUID, OpenTrial])((path / _TRIALS_FILE).read_bytes())
        self._trials = OpenTrials(by_id)
        self.state, _ = self.method.load(path)

    def _decide(self, event: Event) -> Iterator[Operation]:
        state, method = self.state, self.method
        match event:
            case SearchStarted():
                yield from method.initial_operations(state)
                return
            case TrialCreated(request_id):
                state.trials_created.add(request_id)
                state.trial_progress[request_id] = 0.0
                yield from method.on_trial_created(state, request_id)
                return
            case TrialProgressed(request_id, progress):
                state.trial_progress[request_id] = progress * (self._trials.by_id[request_id].ordered or 1)
            case ValidationCompleted(request_id, _, length):
                state.trial_progress[request_id] = length or 0.0
                yield from method.on_validation_completed(state, request_id, event.value, int(length or 0))
            case TrialExitedEarly(request_id, reason):
                if reason is ExitedReason.ERRORED:
                    state.failures.add(request_id)
                else:
                    state.trial_progress.pop(request_id, None)
                yield from method.on_trial_exited_early(state, request_id, reason)
            case TrialClosed(request_id):
                state.trials_closed.add(request_id)
                yield from method.on_trial_closed(state, request_id)
        if not state.experiment_completed:
            yield Progress(method.progress(state))

    def _checked(self, operations: Iterator[Operation]) -> Iterator[Operation]:
        """Yields the operations, without those for trials that have ended."""
        for operation in operations:
            match operation:
                case Create(request_id) if request_id in self._trials.by_id or request_id in self.state.trials_created:
                    raise ValueError(f"the search method creates trial {request_id} a second time")
                case ValidateAfter(request_id) | Close(request_id) | Stop(request_id):
                    if request_id in self.state.trials_closed:
                        continue
                    if request_id not in self._trials.by_id:
                        raise ValueError(f"the search method speaks of trial {request_id}, which it has not created")
                case Shutdown():
                    self.state.experiment_completed = True
                    self.state.experiment_failed = operation.failure
                case Operation():
                    pass
                case _:
                    raise TypeError(f"the search method returns {operation!r}, which is no operation")
            yield operation
