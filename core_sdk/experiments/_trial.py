"""One trial of an experiment: what it was asked for, what it does, and how it ended."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, Literal
from uuid import UUID

from core_sdk.experiments._actions import Action, AskToStop, Kill, Order, Settle
from core_sdk.records import (
    STOPPED_BY_SEARCHER,
    AttemptBegun,
    AttemptOutcome,
    AttemptOver,
    KillSent,
    StopSent,
    ValidationRead,
)
from core_sdk.search import Create, ExitedReason


class Wish(enum.IntEnum):
    """What is to become of the trial. It only ever rises, but for a trial that rests until it is promoted."""

    RUN = 0
    REST = 1
    """Its process ends, and it waits for a longer length."""
    STOP = 2
    """The searcher has given it up."""
    CANCEL = 3
    KILL = 4


class Trial:
    """A trial, changed by `apply` only. The same events give the same trial."""

    def __init__(self, create: Create) -> None:
        self.request_id: UUID = create.request_id
        self.hparams: dict[str, Any] = create.hparams
        self.checkpoint: str | None = create.checkpoint
        self.seed = create.trial_seed
        self.trial_id: int | None = None
        self.wish = Wish.RUN
        self.why = ""
        """Who wished it, where that was not the searcher."""
        self.attempt: int | None = None
        """The attempt that runs."""
        self.slots: tuple[int, ...] = ()
        self.last_attempt = 0
        self.num_attempts = 0
        self.num_restarts = 0
        self.boot = ""
        self.position = (0, 0)
        """How far the searcher knows what was reported: an attempt, and an offset in its journal."""
        self.lengths: tuple[int, ...] = ()
        """What the searcher has ordered, for scripts that ask for operations."""
        self.is_closed = False
        self.last_length = -1.0
        """The greatest length of which the searcher was told."""
        self.metric: Any = None
        """The newest value of the searcher's metric."""
        self.num_missing = 0
        """How many reports in a row have lacked what the searcher needs."""
        self.stop: StopSent | None = None
        self.kill: KillSent | None = None
        self.state: str | None = None
        """How it ended: COMPLETED, CANCELED or ERROR."""
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
        """As what it ends with its attempt, and why; None if that is for the attempt alone to say."""
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

    def order(self, length: int) -> None:
        """Lets it train until `length`."""
        self.lengths = (*self.lengths, length)
        self.ask(Wish.RUN)

    def begin(self, event: AttemptBegun) -> None:
        self.attempt, self.slots, self.boot = event.attempt, tuple(event.slots), event.boot
        self.last_attempt = event.attempt
        self.position = event.attempt, 0
        self.num_attempts += 1
        self.stop = self.kill = None

    def read(self, event: ValidationRead) -> bool:
        """Whether the searcher is to hear of it: not of what it heard before an attempt was repeated."""
        self.position = event.attempt, event.offset
        if self.is_over or self.wish >= Wish.STOP:
            return False
        self.num_missing = self.num_missing + 1 if event.names else 0
        if event.metric is not None:
            self.metric = event.metric
        is_repeated = event.length is not None and event.length <= self.last_length and self.num_attempts > 1
        if event.length is not None and event.metric is not None:
            self.last_length = max(self.last_length, event.length)
        return not is_repeated

    def end(self, event: AttemptOver, max_restarts: int) -> ExitedReason | None:
        """Why the trial, if it is over now, has ended before its training was over."""
        self.attempt, self.slots = None, ()
        was_stopped, self.stop, self.kill = self.stop is not None, None, None
        if (verdict := self.verdict(event.outcome)) is not None:
            state, reason = verdict
            return self._close(state, reason, ExitedReason.USER_CANCELED if state == "CANCELED" else None)
        match event.outcome:
            case "completed" if self.wish is not Wish.REST:
                return self._close("COMPLETED", "")
            case "completed":
                return None
            case "paused":
                # A script that stops without having been asked has a reason of its own, and goes on when it is started.
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
        if self.num_restarts > max_restarts:
            return self._close("ERROR", event.reason, ExitedReason.ERRORED)
        return None

    def revive(self) -> None:
        """Lets it run again, after the experiment had ended."""
        self.state, self.reason, self.wish, self.why, self.num_restarts = None, "", Wish.RUN, "", 0

    def close(self, state: str, reason: str) -> None:
        """Ends a trial without an attempt."""
        self.state, self.reason = state, reason
        self.was_closed_at_rest = self.last_attempt > 0

    def due(self, halt: str) -> Iterator[Action]:
        """What is to be done now; `halt` says why the whole experiment is to stand still, or is empty."""
        if self.is_over:
            if self.was_closed_at_rest:
                yield Settle(self.request_id)
            return
        if self.lengths and self.trial_id is not None:
            yield Order(self.request_id)
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
