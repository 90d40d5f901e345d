"""The base of all runners, which tell the method of events and post its answers to the master.

Three facts make a runner safe to kill. Events are numbered by their position in the experiment's journal. The method's
state is saved together with its newest answer before this answer is posted. The master ignores an answer to events that
were answered before. A runner that starts again therefore posts the saved answer once more, and continues after it. If
the saved state is older than what was posted, the method is told of the events in between, and its answers are dropped.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.following import FollowedExperiment
from core_sdk._execution.experiments.protocol import Post
from core_sdk._execution.experiments.submission import find_submitted, read_config, submit
from core_sdk._ground.config import load
from core_sdk._ground.config.searchers import CustomSearcher
from core_sdk._ground.environment import Environment
from core_sdk._ground.records import scalar, to_json
from core_sdk._home import Home
from core_sdk.errors import ConfigProblem, ExperimentNotFoundError, InvalidConfigError
from core_sdk.search import CustomSearch, Event, Operation, SearchMethod

logger = logging.getLogger("core_sdk.searcher")

Config = str | PathLike[str] | Mapping[str, Any]

_ANSWER_FILE = "answer.json"
_PAUSE_S = 0.05


class SearchRunner(ABC):
    """Drives one search. Subclasses decide where the state of the search is kept."""

    def __init__(self, search_method: SearchMethod) -> None:
        self.search_method = search_method
        self._search = CustomSearch(search_method)
        self._answer: list[Any] = []
        """The newest operations, as JSON values."""

    @abstractmethod
    def _save(self, num_events: int) -> None:
        """Stores durably what `_write_state` writes, and replaces what was stored before."""

    def _should_stop(self) -> bool:
        """Returns whether `_run` should return before the experiment has ended."""
        return False

    def _run(self, config: Config, model_dir: Path | None, includes: Sequence[Path], key: str) -> int:
        """Finds the experiment that was submitted with this `key`, or submits it, and answers its events to its end.

        Raises what the method raises, or `ExperimentNotFoundError` if the search has begun, but not in this home.
        """
        home = Home.create(Environment.read().home)
        experiment_id = find_submitted(home, key)
        if experiment_id is None:
            if (before := self._search.state.experiment_id) is not None:
                raise ExperimentNotFoundError(before, home.root)
            experiment_id = _submit(home, config, model_dir, includes, key)
        logger.info("driving the search of experiment %d", experiment_id)
        followed = FollowedExperiment(home, experiment_id)
        experiment, state = followed.experiment, self._search.state
        state.experiment_id = experiment_id
        for _ in followed.follow(_PAUSE_S):
            num_events = state.last_event_id or 0
            if self._answer:  # an earlier process saved it, and may not have posted it
                self._post(home, experiment_id, num_events)
            answered, new = max(experiment.num_answered, num_events), len(experiment.told)
            self._decide(experiment.told[num_events:answered])
            if new > answered:
                self._answer = [_to_json(operation) for operation in self._decide(experiment.told[answered:])]
                state.last_event_id = new
                self._save(new)
                self._post(home, experiment_id, new)
            state.last_event_id = max(answered, new)
            if self._should_stop():
                break
        return experiment_id

    def _decide(self, events: Iterable[Event]) -> list[Operation]:
        return [operation for event in events for operation in self._search.on(event)]

    def _post(self, home: Home, experiment_id: int, num_events: int) -> None:
        call(home.root, Post(experiment_id=experiment_id, num_events=num_events, operations=self._answer))
        self._answer = []

    def _write_state(self, directory: Path) -> None:
        self._search.save(directory)
        (directory / _ANSWER_FILE).write_text(json.dumps(self._answer))

    def _read_state(self, directory: Path) -> None:
        self._search.load(directory)
        self._answer = json.loads((directory / _ANSWER_FILE).read_text())


def paths(
    model_dir: str | PathLike[str] | None, includes: Iterable[str | PathLike[str]] | None
) -> tuple[Path | None, list[Path]]:
    return None if model_dir is None else Path(model_dir), [Path(path) for path in includes or ()]


def _submit(home: Home, config: Config, model_dir: Path | None, includes: Sequence[Path], key: str) -> int:
    text, source = read_config(config)
    if not isinstance(load(text, source=source).config.searcher, CustomSearcher):
        problem = "must be 'custom', since the runner's method decides"
        raise InvalidConfigError([ConfigProblem(source, None, "searcher.name", problem)])
    submitted = submit(home, text, source=source, model_dir=model_dir, includes=includes, key=key)
    for warning in submitted.warnings:
        logger.warning("%s", warning)
    return submitted.experiment_id


def _to_json(operation: Operation) -> Any:
    return to_json(msgspec.to_builtins(operation, enc_hook=scalar), "the operation")
