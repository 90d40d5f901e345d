"""Supervises the ranks of one node through all their starts: passes signals on, and judges how they ended."""

from __future__ import annotations

import enum
import signal
import threading
import time
from collections.abc import Mapping

from msgspec.structs import replace

from core_sdk._machine.processes._causes import ENDED_BY_STOP, STOPPED, TRACEBACK, RankSeen, failed
from core_sdk._machine.processes._failure_text import place_of_stack
from core_sdk._machine.processes._guardian import Guardian
from core_sdk._machine.processes._guardian_process import end_marked
from core_sdk._machine.processes._outcomes import Failed, Killed, Outcome, RankGrace, Stopping, Succeeded, judge
from core_sdk._machine.processes._ranks import RankProcesses
from core_sdk._machine.processes._signals import STOPS
from core_sdk._machine.processes._statements import RankStatements
from core_sdk._machine.processes.output import RankOutput

# After a failure, the time that the other ranks have between SIGTERM and SIGKILL.
_END_S = 5.0
# The time to wait for a root cause that is not known yet.
_PATIENCE_S = 2.0
# If the grace ends while ranks are being started, the interval of looking whether they run and can be killed.
_POLL_S = 0.05
# The interval at which somebody who waits for the end of a stop is told what it waits for.
_REMINDER_S = 60.0
# The time that the thread that started the ranks may take to notice a SIGKILL.
_AFTER_KILL_S = 15.0


class NotStarted(Exception):
    """A stop was asked for before the ranks were started: they must not be started any more."""


class _Phase(enum.Enum):
    WAITING = enum.auto()
    """No rank runs; some may be started."""
    STARTING = enum.auto()
    RUNNING = enum.auto()
    DECIDED = enum.auto()
    """The outcome of this start is known. Other ranks may still have to be ended."""
    CANCELLED = enum.auto()
    """No rank runs, and none will."""


class Supervisor:
    """Supervises the ranks of one node. Two threads share it.

    One starts the ranks and asks for their outcome: `waiting`, `starting`, `started`, `outcome`, `end`, and again. The
    other one receives the signals: `hand_on`, `stopping`, `time_left_s`, `kill_late`, `kill`.
    """

    def __init__(self, guardian: Guardian, statements: RankStatements, output: RankOutput, grace: RankGrace) -> None:
        self.grace = grace
        self.decided: Outcome | None = None
        """The outcome of the last start; None again after the next one has begun."""
        self.num_ranks = 0
        """The number of ranks on all nodes."""
        self._guardian = guardian
        self._statements = statements
        self._output = output
        self._lock = threading.Lock()
        self._phase = _Phase.WAITING
        self._ranks = RankProcesses(guardian, output)
        self._stops: list[int] = []
        self._stop_asked_s = 0.0
        self.killed: Killed | None = None
        """The ranks that were killed, if any were. It is part of the outcome when they have ended."""

    @property
    def stop_signal(self) -> int | None:
        """The first signal that asked for an end."""
        return self._stops[0] if self._stops else None

    def waiting(self) -> None:
        """Says that the nodes are about to meet. Raises `NotStarted` if a stop was asked for."""
        with self._lock:
            if self._stops:
                raise NotStarted
            self._phase = _Phase.WAITING

    def starting(self) -> None:
        """Says that ranks are about to be started. Raises `NotStarted` if a stop was asked for."""
        with self._lock:
            if self._phase is _Phase.CANCELLED:
                raise NotStarted
            self._phase = _Phase.STARTING
            self.decided = None
        self._statements.forget()

    def started(self, pids: Mapping[int, int], num_ranks: int) -> None:
        """Takes over ranks that have been started. `pids` has the pid of each rank, not to be reaped before `end`."""
        ranks = RankProcesses(self._guardian, self._output)
        for rank, pid in pids.items():
            ranks.add(rank, pid)
        with self._lock:
            self._phase = _Phase.RUNNING
            self._ranks, self.num_ranks = ranks, num_ranks
            for number in self._stops:
                self._ranks.signal(number)

    def await_death(self, timeout_s: float) -> None:
        """Blocks until another rank has died, or for `timeout_s`."""
        self._ranks.has_news.wait(timeout_s)
        self._ranks.has_news.clear()

    def outcome(self, *, is_alone: bool = True) -> Outcome | None:
        """Returns the outcome of this start, or None if it is undecided.

        `is_alone`: the cause of a failure cannot be on another node.
        """
        deaths = self._ranks.deaths()
        outcome = self._outcome(deaths, is_alone) if self._phase is _Phase.RUNNING else None
        if outcome is not None:
            self.decide(outcome)
        return outcome

    def decide(self, outcome: Outcome) -> None:
        with self._lock:
            self._phase, self.decided = _Phase.DECIDED, outcome

    def end(self, grace_s: float = _END_S) -> None:
        """Ends all ranks, and what they left behind in their sessions. Blocks. Afterwards the ranks may be reaped.

        Unless the ranks have ended well, it also ends what they started in other sessions and had no time to end.
        """
        ranks = self._ranks
        ranks.end(grace_s)
        if ranks.pids and not isinstance(self.decided, Succeeded):
            end_marked(self._guardian.mark, least_s=0)
        ranks.release()
        if not ranks.running():
            self._ranks = RankProcesses(self._guardian, self._output)

    def hand_on(self, number: int) -> bool:
        """Passes a signal on to the ranks, but no SIGHUP. Returns whether there are no ranks to wait for."""
        with self._lock:
            if number in STOPS:
                return self._stop(number)
            if self._phase is _Phase.RUNNING and number != signal.SIGHUP:
                self._ranks.signal(number)
            return False

    def time_left_s(self) -> float | None:
        """Returns the time until `kill_late` is to be called, and what `stopping` returns is to be said again.

        Returns None for never.
        """
        with self._lock:
            if self.killed is not None:
                return _AFTER_KILL_S
            if self._phase not in (_Phase.STARTING, _Phase.RUNNING) or not self._stops:
                return None
            return min(max(self._grace_left_s(), _POLL_S), _REMINDER_S)

    def stopping(self) -> Stopping | None:
        """Returns what a stop waits for; None if none was asked for, or nothing is waited for."""
        with self._lock:
            is_waiting = self._phase in (_Phase.STARTING, _Phase.RUNNING) and self.killed is None
            running = self._ranks.running() if self._phase is _Phase.RUNNING else []
            if not self._stops or not is_waiting or self._grace_left_s() <= 0:
                return None
            if self._phase is _Phase.RUNNING and not running:
                return None
            return Stopping(tuple(self._stops), tuple(running), self.grace, self._grace_left_s())

    def kill_late(self) -> bool:
        """Kills ranks whose grace is over. Returns whether to wait for their end."""
        with self._lock:
            if self.killed is not None:
                return False
            if self._phase is _Phase.RUNNING and self._grace_left_s() <= 0:
                self._kill_running(is_impatient=False)
            return True

    def kill(self) -> None:
        """Kills all that still runs, at once."""
        self._ranks.kill()

    def is_starting(self) -> bool:
        """Returns whether ranks are being started. Asked at the end, it means that a start broke off."""
        return self._phase is _Phase.STARTING

    def may_have_left_ranks(self) -> bool:
        """Returns whether ranks may be left that cannot be killed, or that belong to an incomplete start."""
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
            # Ranks that are stopping already may have restored the default handler: a SIGTERM would kill them.
            self._ranks.signal(number)
        return self._phase is _Phase.CANCELLED or (self._phase is _Phase.DECIDED and not self._ranks.running())

    def _grace_left_s(self) -> float:
        return self._stop_asked_s + self.grace.total_s - time.monotonic()

    def _kill_running(self, *, is_impatient: bool) -> None:
        # A rank that has ended is judged by its end, though it may have left processes behind.
        if running := self._ranks.running():
            self.killed = Killed(self._stops[0], tuple(running), self.grace, is_impatient)
        if not is_impatient:
            self._ranks.show_stacks()
        self._ranks.kill()

    def _outcome(self, deaths: Mapping[int, RankSeen], is_alone: bool) -> Outcome | None:
        is_running = len(deaths) < len(self._ranks.pids)
        left = self._statements.left()
        # A rank that has stopped as asked and left its Context has ended well, whatever it exits with afterwards.
        is_stopped = self._statements.is_stopped()
        deaths = {
            rank: replace(death, code=0) if rank in left and (is_stopped or death.code in ENDED_BY_STOP) else death
            for rank, death in deaths.items()
        }
        failures = failed([*deaths.values()])
        if not failures:
            return None if is_running else self._end_well(deaths)
        if self.killed is not None:
            return None if is_running else self._with_places(self.killed, deaths)
        has_patience = time.monotonic() < min(death.ended_s for death in failures) + _PATIENCE_S
        return judge(
            self._see_all(deaths),
            tuple(self._stops),
            has_patience=has_patience,
            is_alone=is_alone,
            has_said_stopped=self._statements.is_stopped(),
        )

    def _end_well(self, deaths: Mapping[int, RankSeen]) -> Outcome:
        """Returns the outcome for ranks that all exited with 0 or 75.

        They have stopped if they have said so. Without a trial, they have also stopped if one exited with 75, or if a
        stop was asked for and the training is not complete. With a trial, a 75 without a statement is a failure.
        """
        has_stop_status = any(death.code == STOPPED for death in deaths.values())
        if self._statements.is_stopped():
            return Succeeded(was_stopped=True)
        if not self._statements.trial_word():
            return Succeeded(has_stop_status or (bool(self._stops) and not self._statements.is_completed()))
        if has_stop_status:
            return Failed(next(seen for seen in self._see_all(deaths) if seen.code == STOPPED))
        return Succeeded(was_stopped=False)

    def _with_places(self, killed: Killed, deaths: Mapping[int, RankSeen]) -> Killed:
        places = {}
        for rank in killed.ranks:
            self._ranks.await_output(rank)
            if place := place_of_stack(self._ranks.seen(rank, deaths[rank]).stderr):
                places[rank] = place
        return replace(killed, places=places)

    def _see_all(self, deaths: Mapping[int, RankSeen]) -> list[RankSeen]:
        for death in failed([*deaths.values()]):
            self._ranks.await_output(death.rank)
        return [self._with_recorded(self._ranks.seen(rank, deaths.get(rank))) for rank in self._ranks.pids]

    def _with_recorded(self, seen: RankSeen) -> RankSeen:
        """Appends the traceback that the rank has recorded to its stderr, if there is none."""
        if TRACEBACK in seen.stderr:
            return seen
        return replace(seen, stderr=seen.stderr + self._statements.recorded_traceback(seen.rank))
