"""Serves the line of tries in the background: starts trials when slots are free, and tidies up behind them.

One process at a time serves the line that a machine has in a home. It ends when the line is empty. If it is killed,
every command that begins, shows or awaits tries starts another one, which finds the line as it was.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import msgspec

from core_sdk._execution.agent.starting import Agent, AgentSpawner
from core_sdk._execution.experiments.code import remove_code
from core_sdk._execution.studies._behind import stop_those_behind
from core_sdk._execution.studies._line import (
    TrialInLine,
    forget,
    line_directory,
    next_in_turn,
    read_line,
    server_lock_path,
    write_waiting,
)
from core_sdk._ground.alive import AliveLock, is_alive
from core_sdk._ground.environment import agent_variables
from core_sdk._ground.environment.names import HOME_VARIABLE
from core_sdk._ground.records import Settled
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts import starting
from core_sdk._home.attempts.ending import read_end, read_settled
from core_sdk._home.attempts.running import never_began, take_back
from core_sdk._home.states import WAITS_FOR_SLOTS, trial_state
from core_sdk._machine.slots import Machine, SlotDirectory, Ticket
from core_sdk.errors import CoreSDKError, TrialRunningError

_LEAVE = "import os, sys; os.fork() or os.execv(sys.argv[1], sys.argv[1:])"
_PAUSE_S = 0.1
_BEHIND_S = 2.0
_LINGER_S = 5.0
_MOST_FORGIVEN_S = 600.0
"""After this time, nobody still begins a trial that has no record."""
_MOST_LOST = 3


def ensure_served(home: Home) -> None:
    """Starts a process that serves the line, if somebody waits or runs there and none does."""
    if not is_alive(server_lock_path(home)) and read_line(home):
        # It is no child of this process, which may be a notebook. `-P`: its directory must not shadow our modules.
        subprocess.run(
            [sys.executable, "-ISc", _LEAVE, sys.executable, "-P", "-m", "core_sdk._execution.studies"],
            env=agent_variables() | {HOME_VARIABLE: str(home.root.absolute())},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )


def serve(home: Home) -> None:
    """Serves the line until it is empty. Returns at once if another process does."""
    while read_line(home):
        try:
            lock = AliveLock(server_lock_path(home))
        except BlockingIOError:
            return
        try:
            _Server(home).run()
        finally:
            lock.release()  # and look once more: somebody may have come meanwhile


class _Server:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._spawner = AgentSpawner()
        self._ticket: Ticket | None = None
        self._machine = Machine.here()
        self._looked = 0.0

    def run(self) -> None:
        empty_since = None
        try:
            while empty_since is None or time.monotonic() - empty_since < _LINGER_S:
                if not line_directory(self._home).exists():
                    return  # the home is gone
                line = self._tidy(read_line(self._home))
                if (first := next_in_turn(line)) is not None:
                    self._serve(first)
                elif self._ticket is not None:
                    self._release()
                if any(each.is_stopped_if_behind for each in line) and time.monotonic() - self._looked > _BEHIND_S:
                    self._looked = time.monotonic()
                    stop_those_behind(self._home, line)
                empty_since = None if line else empty_since or time.monotonic()
                time.sleep(_PAUSE_S)
        finally:
            self._release()
            self._spawner.close()

    def _tidy(self, line: list[TrialInLine]) -> list[TrialInLine]:
        """Forgets those that have ended, and returns the others."""
        left = []
        for each in line:
            folder = self._home.folder(each.trial_id)
            if not folder.exists():
                if time.time() - _age_of(self._home, each) < _MOST_FORGIVEN_S:
                    continue  # it is just being made
                with contextlib.suppress(OSError):  # what a `try` that was killed has left
                    folder.clear()
                forget(self._home, each.trial_id)
            elif not self._has_ended(folder, each):
                left.append(each)
        return left

    def _has_ended(self, folder: TrialFolder, each: TrialInLine) -> bool:
        attempts, settled = folder.attempts(), read_settled(folder)
        if settled is not None and settled.reason.startswith(WAITS_FOR_SLOTS):
            if each.is_started:  # its starter was killed in between
                write_waiting(self._home, msgspec.structs.replace(each, is_started=False))
            return False
        if attempts and folder.running_attempt() is not None:
            if not each.is_started:
                write_waiting(self._home, msgspec.structs.replace(each, is_started=True))
            return False
        if attempts and settled is None:
            if never_began(folder, attempts[-1]):  # its starter was killed in between
                take_back(folder, attempts[-1])
                return False
            end = read_end(folder, None)
            if end.outcome is None and end.exit_code is None and each.num_lost < _MOST_LOST:
                self._let_wait_again(folder, each, attempts[-1])
                return False
            if trial_state(end, False)[0] == "COMPLETED":
                with contextlib.suppress(OSError):  # a copy that stays does no harm
                    remove_code(folder)
        forget(self._home, each.trial_id)
        return True

    def _let_wait_again(self, folder: TrialFolder, each: TrialInLine, attempt: int) -> None:
        """Lets a trial whose agent was killed go on, since that says nothing about what is tried."""
        reason = f"{WAITS_FOR_SLOTS}: the agent of its attempt {attempt} was killed"
        folder.append_change(Settled(time=time.time(), state="PAUSED", reason=reason, attempt=attempt))
        write_waiting(self._home, msgspec.structs.replace(each, is_started=False, num_lost=each.num_lost + 1))

    def _serve(self, first: TrialInLine) -> None:
        """Starts the trial if there are slots for it."""
        machine = self._machine if self._machine.gpus else Machine(max(first.num_slots, self._machine.num_slots))
        try:
            if self._ticket is None:
                self._ticket = Ticket(SlotDirectory(), self._home.root, first.num_slots, machine.usable())
            elif not self._ticket.held:
                self._ticket.take(first.num_slots, machine.usable())
        except BlockingIOError:
            return  # somebody else writes a ticket
        if self._ticket.held:
            ticket, self._ticket = self._ticket, None
            if len(ticket.held) == first.num_slots:
                self._start(first, machine, ticket)
            else:
                ticket.release()

    def _start(self, first: TrialInLine, machine: Machine, ticket: Ticket) -> None:
        folder = self._home.folder(first.trial_id)
        write_waiting(self._home, msgspec.structs.replace(first, is_started=True))
        try:
            start = starting.resume(folder, is_again=True, slots=machine.held(ticket))
            agent = Agent(self._spawner)
            try:
                agent.start(start)
            except CoreSDKError:
                start.withdraw()
                raise
            finally:
                agent.close()
        except TrialRunningError:  # what a killed agent has left still ends
            ticket.release()
        except (CoreSDKError, OSError) as error:
            ticket.release()
            if first.num_lost < _MOST_LOST:  # its agent may have been killed before it had begun
                write_waiting(self._home, msgspec.structs.replace(first, num_lost=first.num_lost + 1))
                return
            newest = max(folder.attempts(), default=0)
            folder.append_change(Settled(time=time.time(), state="ERROR", reason=str(error), attempt=newest))

    def _release(self) -> None:
        if self._ticket is not None:
            self._ticket.release()
            self._ticket = None


def _age_of(home: Home, each: TrialInLine) -> float:
    try:
        return (line_directory(home) / f"{each.trial_id}.json").stat().st_mtime
    except FileNotFoundError:
        return 0.0
