"""A search for your own training loop, which asks for trials and tells their metrics."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from core_sdk._ground.config import ExperimentConfig, from_mapping
from core_sdk._ground.decoding import convert
from core_sdk._ground.records import to_json
from core_sdk.search._events import (
    Event,
    ExitedReason,
    SearchStarted,
    TrialClosed,
    TrialExitedEarly,
    ValidationCompleted,
)
from core_sdk.search._operations import Close, Create, Operation, Pause, Stop, ValidateAfter, Warn
from core_sdk.search._search import Search

logger = logging.getLogger("core_sdk.search")


class AskedTrial(msgspec.Struct):
    """A trial to train."""

    request_id: UUID
    hparams: dict[str, Any]
    seed: int
    until: int | None = None
    """The length to train to, counted from the trial's beginning; None if the loop decides."""
    trained: float = 0.0
    """The length at which the last metric was told."""
    metric: float | None = None
    """The last metric that was told; None if it was not a finite number."""
    is_paused: bool = False
    should_stop: bool = False
    """Whether the search has given up the trial; the next `tell` then ends it."""


class _AskTellState(msgspec.Struct):
    search: Any = None
    trials: dict[UUID, AskedTrial] = {}
    """The trials that have not ended."""
    best: AskedTrial | None = None


class AskTell:
    """A search by the configured method, without an experiment around it.

    The configuration needs no more than `searcher` and `hyperparameters`:

        study = AskTell({"searcher": {...}, "hyperparameters": {...}})
        while (trial := study.ask()) is not None:
            goes_on = True
            while goes_on:
                loss = train(trial.hparams, trial.trained, trial.until)
                goes_on = study.tell(trial, loss)

    With `max_length`, train from `trial.trained` to `trial.until` each time. After `tell` has returned False, `ask` may
    return the trial again later, with a greater length. With `time_metric` and `max_time`, train as far as you like
    each time, and tell the length too, until `tell` returns False. A method without rungs needs one `tell`, at the end.
    Several trials may be asked for before one is told.
    """

    def __init__(self, config: ExperimentConfig | Mapping[str, Any], state: Any = None) -> None:
        """Begins a search, or continues one from a `state` that `state()` returned. Raises `InvalidConfigError`."""
        if not isinstance(config, ExperimentConfig):
            others = {"entrypoint": "true", "reproducibility": {"experiment_seed": 0}}
            config = from_mapping(others | {**config}, is_new=True).config
        self._smaller_is_better = config.searcher.smaller_is_better
        self._is_timed = getattr(config.searcher, "time_metric", None) is not None
        arguments = (config.searcher, config.hyperparameters, config.reproducibility.experiment_seed)
        self._waiting: list[UUID] = []
        """The trials that `ask` will return, in this order."""
        if state is None:
            self._state = _AskTellState()
            self._search = Search(*arguments)
            self._say(SearchStarted())
        else:
            self._state = convert(state, _AskTellState)
            self._search = Search.restore(*arguments, self._state.search)
            self._waiting = [request_id for request_id, trial in self._state.trials.items() if not trial.is_paused]

    @property
    def best(self) -> AskedTrial | None:
        """The trial with the best metric that was told."""
        return self._state.best

    @property
    def progress(self) -> float:
        """The progress of the search, from 0 to 1."""
        return self._search.progress

    def ask(self) -> AskedTrial | None:
        """Returns the next trial to train, or None if the search is over or other trials have to be told first."""
        return self._state.trials[self._waiting.pop(0)] if self._waiting else None

    def tell(self, trial: AskedTrial, metric: float, length: float | None = None) -> bool:
        """Tells the trial's metric to the search, and returns whether to train the trial further at once.

        `length` is how far the trial has trained; it may be omitted if the trial has an `until`.
        """
        if trial.request_id not in self._state.trials:
            raise ValueError(f"trial {trial.request_id} has ended, so that nothing can be told of it")
        length = trial.until if length is None else length
        if length is None and self._is_timed:
            raise ValueError("the searcher has a time_metric: tell its value, as `tell(trial, metric, length)`")
        trial.trained = trial.trained if length is None else length
        self._keep_best(trial, metric)
        self._say(ValidationCompleted(trial.request_id, to_json(metric, "the metric"), length))
        if trial.should_stop or (trial.until is None and not self._is_timed):
            self.end(trial)
        if trial.request_id in self._waiting:
            self._waiting.remove(trial.request_id)
        return trial.request_id in self._state.trials and not trial.is_paused

    def end(self, trial: AskedTrial, reason: ExitedReason | None = None) -> None:
        """Ends a trial before the search does: as completed, or as failed if there is a `reason`."""
        if self._state.trials.pop(trial.request_id, None) is not None:
            if trial.request_id in self._waiting:
                self._waiting.remove(trial.request_id)
            if reason is not None:
                self._say(TrialExitedEarly(trial.request_id, reason))
            self._say(TrialClosed(trial.request_id))

    def state(self) -> Any:
        """Returns the state that another process needs to continue, as JSON values.

        There, `ask` returns again the trials whose metrics were not told yet.
        """
        self._state.search = self._search.state()
        return msgspec.to_builtins(self._state)

    def _say(self, event: Event) -> None:
        for operation in self._search.on(event):
            self._act(operation)

    def _act(self, operation: Operation) -> None:
        trials, waiting = self._state.trials, self._waiting
        match operation:
            case Create(request_id, hparams):
                trials[request_id] = AskedTrial(request_id, hparams, operation.trial_seed)
                waiting.append(request_id)
            case ValidateAfter(request_id, length):
                trials[request_id].until = length
                trials[request_id].is_paused = False
                if request_id not in waiting:
                    waiting.append(request_id)
            case Pause(request_id):
                trials[request_id].is_paused = True
            case Close(request_id) | Stop(request_id):
                trials[request_id].should_stop = True
                if trials[request_id].is_paused or (isinstance(operation, Stop) and request_id in waiting):
                    self.end(trials[request_id])
            case Warn():
                logger.warning("%s", operation.message)

    def _keep_best(self, trial: AskedTrial, metric: float) -> None:
        trial.metric = metric if math.isfinite(metric) else None
        best = math.inf if self._state.best is None else self._cost(self._state.best)
        if self._cost(trial) < best:
            self._state.best = msgspec.structs.replace(trial)

    def _cost(self, trial: AskedTrial) -> float:
        if trial.metric is None:
            return math.inf
        return trial.metric if self._smaller_is_better else -trial.metric
