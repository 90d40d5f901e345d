"""A search method of a user's own, and trials for it."""

from __future__ import annotations

import pickle
import random
import sys
import textwrap
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from core_sdk._execution.experiments.events import read_new_events
from core_sdk._ground.records import OperationsPosted, TrialNumbered
from core_sdk._home import Home
from core_sdk.searcher import (
    Close,
    Create,
    ExitedReason,
    Operation,
    SearcherState,
    SearchMethod,
    Shutdown,
    ValidateAfter,
)

TRAIN = """
from core_sdk import core

with core.init() as context:
    for operation in context.searcher.operations():
        with context.checkpoint.store_path({"steps_completed": operation.length}) as (path, _):
            (path / "length").write_text(str(operation.length))
        operation.report_completed(context.info.trial.hparams["x"] / operation.length)
"""

CONFIG = {
    "name": "own",
    "entrypoint": [sys.executable, "train.py"],
    "searcher": {"name": "custom", "metric": "loss"},
    "max_restarts": 0,
}


def write_code(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "train.py").write_text(textwrap.dedent(TRAIN))
    return directory


class Promoting(SearchMethod):
    """Trains three trials; after each rung the best one goes on, and a newcomer with chosen by chance joins it."""

    lengths = (1, 2, 3)

    def __init__(self) -> None:
        self.chance = random.Random(7)
        self.rungs: list[dict[UUID, float | None]] = [{} for _ in self.lengths]
        """The metrics of the trials that are, or were, in each rung."""

    def initial_operations(self, searcher_state: SearcherState) -> list[Operation]:
        return [operation for _ in range(3) for operation in self._create(0)]

    def on_trial_created(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        return []

    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: UUID, metric: Any, train_length: int
    ) -> list[Operation]:
        index = self.lengths.index(train_length)
        rung = self.rungs[index]
        rung[request_id] = metric
        if None in rung.values():
            return []
        best, *others = sorted(rung, key=lambda member: (rung[member], member))
        operations: list[Operation] = [Close(other) for other in sorted(others)]
        if index + 1 == len(self.lengths):
            return [*operations, Close(best)]
        self.rungs[index + 1][best] = None
        return [*operations, ValidateAfter(best, self.lengths[index + 1]), *self._create(index + 1)]

    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: UUID, exited_reason: ExitedReason
    ) -> list[Operation]:
        return [Shutdown(failure=True)]

    def on_trial_closed(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        is_last = searcher_state.trials_closed >= {member for rung in self.rungs for member in rung}
        return [Shutdown()] if is_last and self.rungs[-1] else []

    def progress(self, searcher_state: SearcherState) -> float:
        return len(searcher_state.trials_closed) / 5

    def save_method_state(self, path: Path) -> None:
        (path / "promoting").write_bytes(pickle.dumps((self.chance.getstate(), self.rungs)))

    def load_method_state(self, path: Path) -> None:
        state, self.rungs = pickle.loads((path / "promoting").read_bytes())
        self.chance.setstate(state)

    def _create(self, rung: int) -> list[Operation]:
        request_id = UUID(int=self.chance.getrandbits(128), version=4)
        self.rungs[rung][request_id] = None
        return [Create(request_id, {"x": self.chance.random()}), ValidateAfter(request_id, self.lengths[rung])]


class Watching(SearchMethod):
    """Makes one trial, and notes its validations."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, int]] = []

    def initial_operations(self, searcher_state: SearcherState) -> list[Operation]:
        return [Create(UUID(int=1, version=4), {})]

    def on_trial_created(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        return []

    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: UUID, metric: Any, train_length: int
    ) -> list[Operation]:
        self.heard.append((metric, train_length))
        return []

    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: UUID, exited_reason: ExitedReason
    ) -> list[Operation]:
        return []

    def on_trial_closed(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        return [Shutdown()]

    def progress(self, searcher_state: SearcherState) -> float:
        return 0.0

    def save_method_state(self, path: Path) -> None:
        """Does nothing, since the method has no state."""

    def load_method_state(self, path: Path) -> None:
        """Does nothing, since the method has no state."""


def posted(home: Home, experiment_id: int) -> list[Any]:
    """Returns the operations in the experiment's journal, without what only tells the progress."""
    path = home.root / "experiments" / str(experiment_id) / "events.journal"
    return [
        msgspec.json.encode(operation)
        for events, _ in (read_new_events(path, 0) if path.exists() else ())
        for event in events
        if isinstance(event, OperationsPosted)
        for operation in event.operations
        if operation["operation"] not in ("progress", "pause")
    ]


def num_trials(home: Home, experiment_id: int) -> int:
    path = home.experiment(experiment_id).events_path
    return sum(isinstance(event, TrialNumbered) for events, _ in read_new_events(path, 0) for event in events)
