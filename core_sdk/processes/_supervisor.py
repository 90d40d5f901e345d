"""The ranks of one node through all their starts: what a signal does to them, and how it ended.

Two threads share a `Supervisor`: one starts ranks and asks for their outcome, the other hands on signals. It knows
nothing of what starts the ranks.
"""

from __future__ import annotations

import enum
import math
import signal
import threading
import time
from collections.abc import Mapping
from typing import Protocol

from core_sdk.processes._causes import STOPPED, WELL, RankSeen
from core_sdk.processes._guardian import Guardian
from core_sdk.processes._outcomes import Killed, Outcome, Succeeded, judge
from core_sdk.processes._ranks import Death, Ranks
from core_sdk.processes._signals import STOPS

# How long the others of a failed rank have between SIGTERM and SIGKILL.
_END_S = 5.0
# How long a root cause is waited for that has not come to light yet.
_PATIENCE_S = 2.0
# Processes that a rank leaves behind may keep its output open.
_LAST_OUTPUT_S = 0.5
# Ranks whose grace is over while they are being started are killed when they are.
_POLL_S = 0.05
# What `select` can wait for.
_LONGEST_S = 1e6
# How long, after a SIGKILL, those who started the ranks may take to notice.
_AFTER_KILL_S = 15.0


class NotStarted(Exception):
    """A stop was asked for before the ranks were started; they must not be."""


class RankErrors(Protocol):
    """What ranks wrote to stderr."""

    def tail(self, rank: int) -> bytes: ...

    def traceback_time(self, rank: int) -> float | None: ...

    def wait_for_end(self, rank: int, timeout_s: float) -> object: ...


class RankStatements(Protocol):
    """What ranks have stated about how they end."""

    def is_stopped(self) -> bool:
        """Whether a rank has said that it stops on request."""

    def is_completed(self) -> bool:
        """Whether a rank has said that its training is complete."""

    def forget(self) -> None:
        """Ranks are started anew."""


class _Phase(enum.Enum):
    WAITING = enum.auto()
    """No rank runs; some may be started."""
    STARTING = enum.auto()
    RUNNING = enum.auto()
    DECIDED = enum.auto()
    """How this start ended is known; perhaps others still have to be ended."""
    CANCELLED = enum.auto()
    """No rank runs, and none will."""


class Supervisor:
    """Ranks are started, and asked about, by one thread: `waiting`, `starting`, `started`, `outcome`, `end`, and anew.

    Another one gets the signals: `hand_on`, `time_left_s`, `kill_late`, `kill`.
    """

    def __init__(self, guardian: Guardian, statements: RankStatements, errors: RankErrors, grace_s: float) -> None:
        self.grace_s = grace_s
        """How long ranks may take to end after a stop was asked for."""
        self.decided: Outcome | None = None
        """How the last start ended; None from the next one on."""
        self.num_ranks = 0
        """On all nodes."""
        self._guardian = guardian
        self._statements = statements
        self._errors = errors
        self._lock = threading.Lock()
        self._phase = _Phase.WAITING
        self._ranks = Ranks({})
        self._drained: set[int] = set()
        self._stops: list[int] = []
        self._stop_asked_s = 0.0
        self._killed: Killed | None = None

    @property
    def stop_signal(self) -> int | None:
        """The first one that asked for an end."""
        return self._stops[0] if self._stops else None

    def waiting(self) -> None:
        """The nodes gather. Raises `NotStarted`."""
        with self._lock:
            if self._stops:
                raise NotStarted
            self._phase = _Phase.WAITING

    def starting(self) -> None:
        """Ranks are about to be started. Raises `NotStarted`."""
        with self._lock:
            if self._phase is _Phase.CANCELLED:
                raise NotStarted
            self._phase = _Phase.STARTING
            self.decided = None
        self._statements.forget()

    def started(self, pids: Mapping[int, int], num_ranks: int) -> None:
        """`pids` by rank. None of them has been reaped, nor will be before `end`."""
        for pid in pids.values():
            self._guardian.guard(pid)
        with self._lock:
            self._phase = _Phase.RUNNING
            self._ranks, self._drained, self.num_ranks = Ranks(pids), set(), num_ranks
            for number in self._stops:
                self._ranks.signal(number)

    def outcome(self, *, is_alone: bool = True) -> Outcome | None:
        """None while it is open; then `end` comes next. `is_alone`: no other node can hold the cause of a failure."""
        deaths = self._ranks.deaths()
        outcome = self._outcome(deaths, is_alone) if self._phase is _Phase.RUNNING else None
        if outcome is not None:
            self.decide(outcome)
        return outcome

    def decide(self, outcome: Outcome) -> None:
        with self._lock:
            self._phase, self.decided = _Phase.DECIDED, outcome

    def end(self, grace_s: float = _END_S) -> None:
        """No rank runs after this, and nothing that one left in its process group; they may be reaped. Blocking."""
        ranks = self._ranks
        ranks.end(grace_s)
        for rank in ranks.deaths():
            self._errors.wait_for_end(rank, _LAST_OUTPUT_S)
            self._guardian.release(ranks.pids[rank])
        if not ranks.running():
            # From now on the pids may be other processes'.
            self._ranks = Ranks({})

    def hand_on(self, number: int) -> bool:
        """Returns whether there is nobody left to wait for."""
        with self._lock:
            if number in STOPS:
                return self._stop(number)
            if self._phase is _Phase.RUNNING:
                self._ranks.signal(number)
            return False

    def time_left_s(self) -> float | None:
        """Until `kill_late` is to be called; None for never."""
        with self._lock:
            if self._killed is not None:
                return _AFTER_KILL_S
            if self._phase not in (_Phase.STARTING, _Phase.RUNNING) or not self._stops:
                return None
            return min(max(self._grace_left_s(), _POLL_S), _LONGEST_S)

    def kill_late(self) -> bool:
        """Kills ranks whose grace is over. Returns whether it is of any use to wait for their end."""
        with self._lock:
            if self._killed is not None:
                return False
            if self._phase is _Phase.RUNNING and self._grace_left_s() <= 0:
                self._kill_running(is_impatient=False)
            return True

    def kill(self) -> None:
        """All that still runs, at once."""
        self._ranks.kill()

    def is_starting(self) -> bool:
        """Once there are no more events: whether a start broke off in its middle."""
        return self._phase is _Phase.STARTING

    def may_have_left_ranks(self) -> bool:
        """Unkillable ones, or those of a start that broke off."""
        return self.is_starting() or bool(self._ranks.running())

    def _stop(self, number: int) -> bool:
        is_impatient = number == signal.SIGINT and signal.SIGINT in self._stops
        self._stop_asked_s = self._stop_asked_s if self._stops else time.monotonic()
        self._stops.append(number)
        if self._phase is _Phase.WAITING:
            self._phase = _Phase.CANCELLED
        elif self._phase is not _Phase.STARTING and is_impatient:
            self._kill_running(is_impatient=True)
        elif self._phase is _Phase.RUNNING and not (number == signal.SIGTERM and self._statements.is_stopped()):
            # To ranks that are stopping already, another SIGTERM could only come after they have given it back.
            self._ranks.signal(number)
        return self._phase is _Phase.CANCELLED or (self._phase is _Phase.DECIDED and not self._ranks.running())

    def _grace_left_s(self) -> float:
        return self._stop_asked_s + self.grace_s - time.monotonic()

    def _kill_running(self, *, is_impatient: bool) -> None:
        # What has ended is judged by its end, though it may have left somebody behind.
        if running := self._ranks.running():
            self._killed = Killed(self._stops[0], tuple(running), is_impatient)
        self._ranks.kill()

    def _outcome(self, deaths: Mapping[int, Death], is_alone: bool) -> Outcome | None:
        is_running = len(deaths) < len(self._ranks.pids)
        failed = [death for death in deaths.values() if death.code not in WELL]
        if not failed:
            return None if is_running else Succeeded(self._was_stopped(deaths))
        if self._killed is not None:
            return None if is_running else self._killed
        has_patience = time.monotonic() < min(death.time_s for death in failed) + _PATIENCE_S
        return judge(
            self._look(deaths),
            tuple(self._stops),
            has_patience=has_patience,
            is_alone=is_alone,
            has_said_stopped=self._statements.is_stopped(),
        )

    def _was_stopped(self, deaths: Mapping[int, Death]) -> bool:
        """A script without Core SDK says nothing, or it by its status: otherwise the signal counts."""
        if self._statements.is_stopped() or any(death.code == STOPPED for death in deaths.values()):
            return True
        return bool(self._stops) and not self._statements.is_completed()

    def _look(self, deaths: Mapping[int, Death]) -> list[RankSeen]:
        for death in deaths.values():
            if death.code not in WELL and death.rank not in self._drained:
                self._drained.add(death.rank)
                self._errors.wait_for_end(death.rank, _LAST_OUTPUT_S)
        return [self._seen(rank, pid, deaths.get(rank)) for rank, pid in self._ranks.pids.items()]

    def _seen(self, rank: int, pid: int, death: Death | None) -> RankSeen:
        return RankSeen(
            rank=rank,
            pid=pid,
            code=None if death is None else death.code,
            ended_s=math.inf if death is None else death.time_s,
            traceback_s=self._errors.traceback_time(rank),
            stderr=self._errors.tail(rank),
        )
