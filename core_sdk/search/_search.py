"""A search by a built-in method, as its driver sees it, with all that the methods have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self
from uuid import UUID

import msgspec

from core_sdk._ground.config.hyperparameters import HyperparameterSpace
from core_sdk._ground.config.searchers import SearcherConfig
from core_sdk._ground.decoding import convert
from core_sdk._ground.records import Metric, to_json
from core_sdk.search._events import Event, ExitedReason, TrialClosed, TrialExitedEarly, ValidationCompleted
from core_sdk.search._methods import open_method
from core_sdk.search._operations import Operation, Shutdown, Warn
from core_sdk.search._scores import score_of
from core_sdk.search._trials import OpenTrial, OpenTrials

FORMAT = 1
MAX_OVERDUE = 3
"""The number of reports without the metric after which a trial is compared without it.

It is more than one, since a script may report a step in two calls.
"""


class SearchState(msgspec.Struct):
    """The state of a search."""

    format: int = FORMAT
    num_created: int = 0
    num_closed: int = 0
    num_failed: int = 0
    num_canceled: int = 0
    num_invalid: int = 0
    is_over: bool = False
    latest_first: float | None = None
    """The greatest length at which a trial has reported the metric for the first time; None if none has."""
    warned: list[str] = []
    """The kinds of warnings that were given."""
    open_trials: dict[UUID, OpenTrial] = {}
    method: Any = None
    points: Any = None


class Search:
    """Answers events with operations. It does no I/O, and the same events always get the same operations."""

    def __init__(self, searcher: SearcherConfig, space: HyperparameterSpace, seed: int) -> None:
        self._searcher = searcher
        self._time_metric: str | None = getattr(searcher, "time_metric", None)
        self._points, self._method = open_method(searcher, space, seed)
        self._state = SearchState()
        self._trials = OpenTrials(self._state.open_trials)

    @classmethod
    def restore(cls, searcher: SearcherConfig, space: HyperparameterSpace, seed: int, state: Any) -> Self:
        """Returns the search that had this `state()`. The other three arguments must be the same as then."""
        search = cls(searcher, space, seed)
        search._state = convert(state, SearchState)
        search._trials = OpenTrials(search._state.open_trials)
        search._points.num_made = search._state.num_created
        search._method.decode(search._state.method)
        if search._state.points is not None:
            search._points.decode(search._state.points)
        return search

    def state(self) -> Any:
        """Returns all that `restore` needs, as JSON values."""
        self._state.num_created = self._points.num_made
        self._state.method = self._method.encode()
        self._state.points = self._points.encode()
        return msgspec.to_builtins(self._state)

    @property
    def max_trials(self) -> int:
        """The number of trials, apart from those whose hyperparameters cannot be trained."""
        return self._method.max_trials

    @property
    def brackets(self) -> list[list[int]]:
        """The lengths of the rungs of each bracket. A search that compares all its trials has one bracket."""
        return self._method.brackets

    def bracket_of(self, request_id: UUID) -> int:
        """Returns the index of a trial's bracket."""
        return self._method.bracket_of(request_id)

    @property
    def lengths(self) -> list[int]:
        """The lengths of the rungs, from the lowest, or the one length of all trials; empty if only scripts know it."""
        return self._method.lengths

    @property
    def is_over(self) -> bool:
        """Whether the search has ended itself: no event will get an answer any more."""
        return self._state.is_over

    @property
    def progress(self) -> float:
        """The progress of the search, from 0 to 1."""
        if self._state.is_over:
            return 1.0
        num_ended = self._state.num_closed - self._state.num_invalid
        of_open = math.fsum(trial.progress for trial in self._trials.by_id.values())
        return min(max(num_ended + of_open, self._method.num_compared / 1.2) / self.max_trials, 1.0)

    def read_report(self, request_id: UUID, metrics: Mapping[str, Metric]) -> ValidationCompleted:
        """Returns the event for a validation report of a trial that was not told how far to train."""
        metric = metrics.get(self._searcher.metric)
        length = _number(metrics.get(self._time_metric)) if self._time_metric else None
        if length is not None and not math.isfinite(length):
            length = None
        is_whole = _number(metric) is not None and (length is not None or self._time_metric is None)
        return ValidationCompleted(
            request_id, to_json(metric, "the metric"), length, () if is_whole else tuple(sorted(metrics))
        )

    def on(self, event: Event) -> list[Operation]:
        """Returns the operations that follow from the event, in order. Events of trials that have ended are ignored."""
        if self._state.is_over or not self._trials.concerns(event):
            return []
        return list(self._trials.answered(event, self._answer(event)))

    def _answer(self, event: Event) -> Iterator[Operation]:
        for operation in self._decide(event):
            if isinstance(operation, Warn):
                if operation.kind in self._state.warned:
                    continue
                self._state.warned.append(operation.kind)
            yield operation
        if (num_free := self._method.max_concurrent - self._method.num_active) > 0:
            yield from self._method.fill(num_free)
        if self._state.num_closed == self._points.num_made:
            self._state.is_over = True
            yield self._shutdown()

    def _decide(self, event: Event) -> Iterator[Operation]:
        match event:
            case ValidationCompleted():
                yield from self._judge(event)
            case TrialExitedEarly():
                self._state.num_failed += event.reason is ExitedReason.ERRORED
                self._state.num_canceled += event.reason is ExitedReason.USER_CANCELED
                self._state.num_invalid += event.reason is ExitedReason.INVALID_HP
                yield from self._method.exited(event.request_id, event.reason is ExitedReason.INVALID_HP)
            case TrialClosed():
                self._state.num_closed += 1
                was_asked = self._trials.by_id[event.request_id].was_asked_to_end
                yield from self._method.closed(event.request_id, was_asked)

    def _judge(self, event: ValidationCompleted) -> Iterator[Operation]:
        trial = self._trials.by_id[event.request_id]
        metric = _number(event.value)
        if metric is None:
            yield _missing("metric_missing", self._searcher.metric, event)
        if trial.ordered is not None:
            length, metric = float(trial.ordered), math.nan if metric is None else metric
        else:
            reported = _number(event.length)
            if self._time_metric is None:
                return
            if reported is None:
                if metric is not None:
                    yield _missing("time_missing", self._time_metric, event)
                return
            if metric is None:
                if not self._is_overdue(trial, reported):
                    return
                metric = math.nan
            elif not trial.is_heard:
                trial.is_heard = True
                self._state.latest_first = max(self._state.latest_first or 0.0, reported)
            if reported == trial.length:
                yield Warn(
                    "time_not_growing",
                    f"a trial has reported {self._time_metric} {reported:g} twice. The searcher takes it for the "
                    "length of the training: report how many epochs or batches are done.",
                    event.request_id,
                )
            # A trial that goes on from a checkpoint reports again what it has reported before.
            if reported <= trial.length:
                return
            length = reported
        trial.length = length
        yield from self._method.validated(event.request_id, score_of(metric, self._searcher.smaller_is_better), length)

    def _is_overdue(self, trial: OpenTrial, length: float) -> bool:
        """Returns whether the trial counts as one whose metric is NaN, and takes note of its report.

        It does not if it has reported the metric before, or if others began to report it only at this length.
        """
        if trial.is_heard or self._state.latest_first is None or length <= self._state.latest_first:
            return False
        trial.num_overdue += 1
        return trial.num_overdue >= MAX_OVERDUE

    def _shutdown(self) -> Shutdown:
        """Returns the operation that ends the search. One good trial is enough for the search to be completed."""
        state = self._state
        has_good = state.num_closed > state.num_failed + state.num_canceled + state.num_invalid
        is_canceled = state.num_canceled == state.num_closed
        return Shutdown(cancel=is_canceled and not has_good, failure=not is_canceled and not has_good)


def _number(value: Any) -> float | None:
    """Returns the value as a number, or None if it is not one."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _missing(kind: Literal["metric_missing", "time_missing"], name: str, event: ValidationCompleted) -> Warn:
    reported = ", ".join(event.reported) or repr(event.value)
    return Warn(
        kind,
        f"a trial has reported {reported}, but no number for {name!r}, which the searcher needs. Report it with the "
        "validation metrics, or correct the name in the searcher's configuration.",
        event.request_id,
    )
