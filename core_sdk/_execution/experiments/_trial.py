"""A trial of an experiment: what was asked of it, its attempts, and how it ended."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Any, Literal
from uuid import UUID

from core_sdk._execution.experiments._actions import Action, AskToStop, Kill, Settle, TellLength
from core_sdk._ground.records import (
    STOPPED_BY_SEARCHER,
    AttemptBegun,
    AttemptOutcome,
    AttemptOver,
    KillSent,
    Source,
    StopSent,
    ValidationRead,
)
from core_sdk.search import Create, ExitedReason

# Longer than a stop takes to be heard, also on another machine.
_HEARD_S = 5.0


class Wish(enum.IntEnum):
    """The state that a trial is asked to reach. It only rises, except from REST to RUN when the trial is promoted."""

    RUN = 0
    REST = 1
    """The trial's process ends, and the trial waits for a greater length."""
    STOP = 2
    """The searcher has given up the trial."""
    CANCEL = 3
    KILL = 4


def without_numbers(words: str) -> str:
    """Returns the words without what differs between two equal failures: process ids, times, ports."""
    return re.sub(r"\d+", "", words)


class TrialStateMachine:
    """A trial, which only `ExperimentStateMachine.apply` changes. The same events give the same trial."""

    def __init__(self, create: Create) -> None:
        self.request_id: UUID = create.request_id
        self.hparams: dict[str, Any] = create.hparams
        self.checkpoint: str | None = create.checkpoint
        self.seed = create.trial_seed
        self.trial_id: int | None = None
        self.wish = Wish.RUN
        self.why = ""
        """The origin of the wish, for people; empty if it was the searcher."""
        self.search_wish = Wish.RUN
        """The wish of the searcher alone, which a person's wish to end the trial overrides."""
        self.attempt: int | None = None
        """The number of the attempt that runs."""
        self.slots: tuple[int, ...] = ()
        self.last_attempt = 0
        self.num_attempts = 0
        self.num_restarts = 0
        self.boot = ""
        self.position = (0, 0)
        """The position up to which the searcher knows the reports: an attempt, and an offset in its journal."""
        self.other_positions: dict[tuple[int, Source], int] = {}
        """The offset up to which they are known in each journal of another rank or a writer, by attempt and source."""
        self.is_told_by_chief = False
        """Whether rank 0 has reported the searcher's metric since the attempt began."""
        self.lengths: tuple[int, ...] = ()
        """The lengths that the searcher has ordered, for scripts that ask for operations."""
        self.is_closed = False
        self.last_length = -1.0
        """The greatest length that the searcher was told."""
        self.metric: Any = None
        """The newest value of the searcher's metric."""
        self.has_metric = False
        """Whether a report has ever had all that the searcher needs."""
        self.other_names: tuple[str, ...] = ()
        """The names of the metrics in the newest report that lacked some of it."""
        self.is_told_closed = False
        """Whether the searcher knows that the trial has ended, so that it decides nothing about it any more."""
        self.last_words = ""
        """The last line of output of the last attempt, without its numbers, if it failed before `init()`."""
        self.stop: StopSent | None = None
        self.kill: KillSent | None = None
        self.reported_after_stop: float | None = None
        """The time of the first report after the attempt was asked to stop."""
        self.ignored_stop = ""
        """The reason of a stop after which an attempt has trained on; empty if there is none."""
        self.state: str | None = None
        """The state in which it ended: COMPLETED, CANCELED or ERROR. None before that."""
        self.reason = ""
        self.was_closed_at_rest = False

    @property
    def is_running(self) -> bool:
        return self.attempt is not None

    @property
    def is_over(self) -> bool:
        return self.state is not None

    @property
    def is_startable(self) -> bool:
        return self.wish is Wish.RUN and not self.is_running and not self.is_over

    def verdict(self, outcome: AttemptOutcome = "paused") -> tuple[Literal["COMPLETED", "CANCELED"], str] | None:
        """Returns the state and the reason with which the trial ends when its attempt ends with this outcome.

        Returns None if the outcome alone decides.
        """
        if self.wish >= Wish.CANCEL:
            return "CANCELED", self.why
        return ("COMPLETED", STOPPED_BY_SEARCHER) if self.wish is Wish.STOP and outcome != "completed" else None

    def ask(self, wish: Wish, why: str = "") -> None:
        if self.is_over:
            return
        if wish > self.wish:
            self.wish, self.why = wish, why
        elif self.wish is Wish.REST and wish is Wish.RUN:
            self.wish = Wish.RUN
        if self.wish < Wish.CANCEL:
            self.search_wish = self.wish

    def order(self, length: int) -> None:
        """Lets it train until `length`."""
        self.lengths = (*self.lengths, length)
        self.ask(Wish.RUN)

    def begin(self, event: AttemptBegun) -> None:
        self.attempt, self.slots, self.boot = event.attempt, tuple(event.slots), event.boot
        self.last_attempt = event.attempt
        self.position = event.attempt, 0
        self.is_told_by_chief = False
        self.num_attempts += 1
        self.stop = self.kill = self.reported_after_stop = None

    def note_report(self, time: float) -> None:
        """Notes that a report was read. The first ones after a stop may be older than the stop."""
        if self.stop is None:
            return
        if self.reported_after_stop is None:
            self.reported_after_stop = time
        elif time - self.reported_after_stop >= _HEARD_S:
            self.ignored_stop = self.stop.reason

    def note_position(self, event: ValidationRead) -> None:
        """Notes how far the journal is known from which the report comes."""
        if event.rank == 0:
            self.position = event.attempt, event.offset
        else:
            self.other_positions[event.attempt, event.rank] = event.offset

    def read(self, event: ValidationRead) -> bool:
        """Records a report. Returns False if the searcher was told of it before, or if the trial is to end."""
        self.note_position(event)
        if event.rank == 0:
            self.is_told_by_chief = self.is_told_by_chief or event.metric is not None
        if self.is_over or self.wish >= Wish.STOP:
            return False
        self.has_metric = self.has_metric or (event.metric is not None and not event.names)
        self.other_names = tuple(event.names) or self.other_names
        if event.metric is not None:
            self.metric = event.metric
        is_repeated = event.length is not None and event.length <= self.last_length and self.num_attempts > 1
        if event.length is not None and event.metric is not None:
            self.last_length = max(self.last_length, event.length)
        return not is_repeated

    def end(self, event: AttemptOver, max_restarts: int) -> ExitedReason | None:
        """Records the end of an attempt. Returns the reason if the trial has now exited early, else None."""
        self.attempt, self.slots = None, ()
        was_stopped, self.stop, self.kill = self.stop is not None, None, None
        if (verdict := self.verdict(event.outcome)) is not None:
            state, reason = verdict
            return self._close(state, reason, ExitedReason.USER_CANCELED if state == "CANCELED" else None)
        match event.outcome:
            case "completed" if self.wish is not Wish.REST:
                return self._close("COMPLETED", event.reason)
            case "completed":
                return None
            case "paused":
                # A script that stops without having been asked has its own reason. It continues when it is restarted.
                self.num_restarts += not was_stopped
            case "lost":
                return None
            case "canceled":
                return self._close("CANCELED", event.reason, ExitedReason.USER_CANCELED)
            case "invalid_hp":
                return self._close("COMPLETED", event.reason, ExitedReason.INVALID_HP)
            case "hopeless":
                return self._close("ERROR", event.reason, ExitedReason.ERRORED)
            case "failed":
                self.num_restarts += 1
                before, self.last_words = self.last_words, without_numbers(event.last_words)
                if self.last_words and self.last_words == before:
                    reason = f"{event.reason}, twice before init(), with the words: {event.last_words}"
                    return self._close("ERROR", reason, ExitedReason.ERRORED)
        if self.num_restarts > max_restarts:
            return self._close("ERROR", event.reason, ExitedReason.ERRORED)
        return None

    def revive(self) -> None:
        """Lets the trial go on after the experiment has ended, as far as the searcher had wished."""
        self.state, self.reason, self.why, self.num_restarts, self.last_words = None, "", "", 0, ""
        self.wish = Wish.RUN if self.is_told_closed else self.search_wish
        self.was_closed_at_rest = self.is_told_closed = False

    def close(self, state: str, reason: str) -> None:
        """Ends a trial without an attempt."""
        self.state, self.reason = state, reason
        self.was_closed_at_rest = self.last_attempt > 0

    def due(self, halt: str) -> Iterator[Action]:
        """Yields the actions that are due. `halt` is the reason for which all trials must stop, or is empty."""
        if self.is_over:
            if self.was_closed_at_rest:
                yield Settle(self.request_id)
            return
        if self.lengths and self.trial_id is not None:
            yield TellLength(self.request_id)
        if self.attempt is None:
            return
        if self.wish is Wish.KILL:
            if self.kill is None:
                yield Kill(self.request_id, self.why)
        elif self.stop is None and (reason := self._stop_reason() or halt):
            yield AskToStop(self.request_id, reason)

    def _stop_reason(self) -> str:
        match self.wish:
            case Wish.RUN:
                return ""
            case Wish.REST:
                return "waits for its promotion"
            case Wish.STOP:
                return STOPPED_BY_SEARCHER
        return self.why

    def _close(self, state: str, reason: str, exited: ExitedReason | None = None) -> ExitedReason | None:
        self.state, self.reason = state, reason
        return exited
